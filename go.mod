module github.com/stoker-data/stoker

go 1.26.0

package main

import (
	"fmt"
	"runtime"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/wire"
)

type versionCmd struct {
	JSON bool `help:"Write JSON."`
}

func (v versionCmd) Run(con *console) error {
	if v.JSON {
		return con.writeJSON(map[string]any{
			"version": stoker.Version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
			"kernel": kernel.Target(), "protocol": wire.Protocol,
		})
	}
	_, err := fmt.Fprintf(con.out, "stoker %s (%s, %s/%s, kernel %s)\n", stoker.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel.Target())
	return err
}

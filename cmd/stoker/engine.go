package main

import (
	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/engine"
)

// engineCmd is the process that the Python package starts.
type engineCmd struct {
	FD int `name:"fd" required:"" help:"Inherited descriptor of the client's socket."`
}

func (c engineCmd) Run() error { return engine.Run(c.FD, stoker.Version(), kernel.Target()) }

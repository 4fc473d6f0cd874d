package main

import (
	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/engine"
)

// engineCmd is the process that the Python package starts.
type engineCmd struct {
	FD     int `name:"fd" required:"" help:"Inherited descriptor of the client's socket."`
	Parent int `name:"parent" help:"Process ID of the client, if its main thread started the engine: the kernel then kills the engine when the client ends."`
}

func (c engineCmd) Run() error { return engine.Run(c.FD, c.Parent, stoker.Version(), kernel.Target()) }

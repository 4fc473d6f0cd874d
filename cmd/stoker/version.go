package main

import (
	"fmt"
	"runtime"
	"strings"

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
			"kernel": kernel.Target(), "libraries": kernel.Libraries(), "protocol": wire.Protocol,
		})
	}
	libraries := "no C libraries"
	if built := kernel.Libraries(); len(built) > 0 {
		libraries = strings.Join(built, ", ")
	}
	_, err := fmt.Fprintf(con.out, "stoker %s (%s, %s/%s, kernel %s, %s)\n", stoker.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel.Target(), libraries)
	return err
}

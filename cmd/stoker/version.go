package main

import (
	"fmt"
	"io"
	"runtime"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

type versionCmd struct{}

func (versionCmd) Run(out io.Writer) error {
	_, err := fmt.Fprintf(out, "stoker %s (%s, %s/%s, kernel %s)\n", stoker.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel.Target())
	return err
}

package s3_test

import (
	"os"
	"testing"

	"github.com/stoker-data/stoker/internal/stagetest"
)

func TestMain(m *testing.M) { os.Exit(stagetest.OwnCache(m)) }

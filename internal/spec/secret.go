package spec

import (
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// variables are where secrets of stores belong, by what the key of a secret contains:
// letters and digits in lower case. The first that fits counts.
var variables = []struct{ part, set string }{
	{"accountkey", "AZURE_STORAGE_KEY"},
	{"storagekey", "AZURE_STORAGE_KEY"},
	{"azurekey", "AZURE_STORAGE_KEY"},
	{"connectionstring", "AZURE_STORAGE_CONNECTION_STRING"},
	{"connstr", "AZURE_STORAGE_CONNECTION_STRING"},
	{"clientsecret", "AZURE_CLIENT_SECRET"},
	{"sastoken", "AZURE_STORAGE_SAS_TOKEN"},
	{"sharedaccess", "AZURE_STORAGE_SAS_TOKEN"},
	{"sessiontoken", "AWS_SESSION_TOKEN"},
	{"securitytoken", "AWS_SESSION_TOKEN"},
	{"secret", "AWS_SECRET_ACCESS_KEY"},
	{"credential", "GOOGLE_APPLICATION_CREDENTIALS"},
	{"serviceaccount", "GOOGLE_APPLICATION_CREDENTIALS"},
	{"hf", "HF_TOKEN"},
	{"huggingface", "HF_TOKEN"},
	{"token", tokens},
	{"bearer", tokens},
	{"authorization", tokens},
	{"password", ".netrc (or the file that NETRC names)"},
	{"passwd", ".netrc (or the file that NETRC names)"},
	{"passphrase", ".netrc (or the file that NETRC names)"},
	{"username", ".netrc (or the file that NETRC names)"},
	{"login", ".netrc (or the file that NETRC names)"},
	{"signature", "AZURE_STORAGE_SAS_TOKEN"},
	{"key", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AZURE_STORAGE_KEY"},
}

const tokens = "HF_TOKEN, AWS_SESSION_TOKEN, GOOGLE_APPLICATION_CREDENTIALS (the name of a file), or a variable of your own, named by token_env"

// A vendor says where the stores of some schemes find credentials: in variables that begin
// with prefix. set is named for a secret that has no such variable.
type vendor struct{ prefix, set string }

var (
	aws    = vendor{"AWS_", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for temporary keys, AWS_SESSION_TOKEN too)"}
	google = vendor{"GOOGLE_", "GOOGLE_APPLICATION_CREDENTIALS (the name of a file), or a variable of your own that holds a token, named by token_env"}
	azure  = vendor{"AZURE_", "AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or a variable of your own that holds a token, named by token_env"}
	hub    = vendor{"HF_", "HF_TOKEN, or a variable of your own, named by token_env"}
	web    = vendor{".netrc", ".netrc (or the file that NETRC names), or into a variable of your own, named by token_env,"}

	vendors = map[string]vendor{
		"s3": aws, "gs": google, "gcs": google, "az": azure, "azure": azure, "abfs": azure, "abfss": azure,
		"hf": hub, "http": web, "https": web,
	}
)

// Secret reports whether a key of some settings, in any spelling, is that of a key, a
// token or a password, and what to do instead: set an environment variable. If all
// names in stores are of one vendor, only its variables are named.
func Secret(key string, names ...string) (do string, is bool) {
	set, is := variable(key)
	if !is {
		return "", false
	}
	var of vendor
	for _, name := range names {
		v, known := vendors[source.SchemeOf(strings.TrimPrefix(name, "@"))]
		if known && of != (vendor{}) && v != of {
			of = vendor{}
			break
		}
		if known {
			of = v
		}
	}
	if of != (vendor{}) && (!strings.HasPrefix(set, of.prefix) || strings.Contains(set, ", ") || of == web) {
		set = of.set
	}
	if strings.HasPrefix(set, ".netrc") {
		return "write it into " + set, true
	}
	return "set " + set, true
}

// variable is where the secret of a key belongs, whatever the store.
func variable(key string) (set string, is bool) {
	plain := errs.Fold(key)
	switch plain {
	case "tokenenv": // the name of a variable
		return "", false
	case "sas", "sig":
		return "AZURE_STORAGE_SAS_TOKEN", true
	case "auth", "pass", "pwd", "user":
		return ".netrc (or the file that NETRC names)", true
	case "cred", "creds":
		return "GOOGLE_APPLICATION_CREDENTIALS", true
	}
	for _, v := range variables {
		if strings.Contains(plain, v.part) && (v.part != "hf" || strings.Contains(plain, "token")) {
			return v.set, true
		}
	}
	return "", false
}

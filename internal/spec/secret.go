package spec

import (
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
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
	{"password", ".netrc (the file NETRC names)"},
	{"passwd", ".netrc (the file NETRC names)"},
	{"passphrase", ".netrc (the file NETRC names)"},
	{"username", ".netrc (the file NETRC names)"},
	{"login", ".netrc (the file NETRC names)"},
	{"signature", "AZURE_STORAGE_SAS_TOKEN"},
	{"key", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AZURE_STORAGE_KEY"},
}

const tokens = "HF_TOKEN, AWS_SESSION_TOKEN, GOOGLE_APPLICATION_CREDENTIALS (the name of a file), or a variable of your own, named by token_env"

// Secret reports whether a key of some settings, in any spelling, is that of a key, a
// token or a password, and what to set in its place: an environment variable.
func Secret(key string) (set string, is bool) {
	plain := errs.Fold(key)
	switch plain {
	case "tokenenv": // the name of a variable
		return "", false
	case "sas", "sig":
		return "AZURE_STORAGE_SAS_TOKEN", true
	case "auth", "pass", "pwd", "user":
		return ".netrc (the file NETRC names)", true
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

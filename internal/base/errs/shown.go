package errs

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Shown is a name, or a text with names in it, as it may be shown and stored: without
// the signatures and tokens in the queries of URLs, and without user names and passwords
// before hosts. Two URLs of one object that were signed at different times become the
// same text. A text without a URL is returned as it is.
//
// Every Error passes through it when it is written, because the causes of errors come
// from libraries that quote URLs.
func Shown(text string) string {
	marked := text
	if strings.Contains(text, ":/") {
		marked = lost().ReplaceAllString(text, "$1$2"+mark+"://$3")
	}
	if !strings.Contains(marked, "://") && !strings.Contains(text, "AccountKey=") {
		return text
	}
	return strings.ReplaceAll(withoutQueries(withoutUsers(marked)), mark+"://", ":/")
}

// Schemes are those that names of stores are commonly written with.
var Schemes = []string{"s3", "gs", "gcs", "az", "azure", "abfs", "abfss", "http", "https", "hf"}

// lost is the beginning of a URL that has lost a slash, as Python's Path writes it. While it is
// cleaned, mark is where the slash was. It is compiled when it is needed, not at every start.
var lost = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(^|[^A-Za-z0-9+.-])(` + strings.Join(Schemes, "|") + `):/([^/])`)
})

const mark = "\x00"

// ShownWords is a command line that may be shown and stored: names as Shown, and without
// the values of flags that are called key, token, password or secret.
func ShownWords(words []string) []string {
	out := make([]string, len(words))
	hidden := false
	for i, w := range words {
		name, _, given := strings.Cut(w, "=")
		flag := strings.HasPrefix(w, "-") && slices.ContainsFunc([]string{"key", "token", "password", "secret"}, func(end string) bool {
			return strings.HasSuffix(strings.ToLower(name), end)
		})
		switch {
		case hidden && !strings.HasPrefix(w, "-"):
			out[i] = "..."
		case flag && given:
			out[i] = name + "=..."
		default:
			out[i] = Shown(w)
		}
		hidden = flag && !given
	}
	return out
}

// withoutUsers removes "user:password@" after every "://". A user without a password
// stays, because abfs://container@account is one, but for HTTP, where it is a token.
func withoutUsers(text string) string {
	var out strings.Builder
	for {
		i := strings.Index(text, "://")
		if i < 0 {
			out.WriteString(text)
			return out.String()
		}
		scheme := strings.TrimSuffix(strings.ToLower(text[:i]), mark)
		i += len("://")
		out.WriteString(text[:i])
		text = text[i:]
		end := strings.IndexAny(text, "/?# \t\r\n\"'<>")
		if end < 0 {
			end = len(text)
		}
		host := text[:end]
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			owner := strings.HasSuffix(scheme, "github") // fsspec's: github://owner:repository@ref
			if strings.Contains(host[:at], ":") && !owner || strings.HasSuffix(scheme, "http") || strings.HasSuffix(scheme, "https") {
				text = text[at+1:]
			}
			continue
		}
		// A password may have a slash that should have been escaped: what follows the
		// colon is then no port.
		colon := strings.IndexByte(host, ':')
		if colon < 0 || strings.Trim(host[colon+1:], "0123456789") == "" || host[0] == '[' {
			continue
		}
		if at := strings.LastIndexByte(before(text, " \t\r\n\"'<>"), '@'); at >= 0 {
			text = text[at+1:]
		} else if at := strings.IndexByte(before(text, "\t\r\n\"'<>"), '@'); at >= 0 { // or a space
			text = text[at+1:]
		}
	}
}

// before is what precedes the first of these characters.
func before(text, chars string) string {
	if end := strings.IndexAny(text, chars); end >= 0 {
		return text[:end]
	}
	return text
}

// parameter is one part of a query: what separates it, its name, its value. JSON writes
// the ampersand as \u0026.
var parameter = regexp.MustCompile(`([?&;#]|\\u0026)([A-Za-z0-9_.%~-]+)=([^&;#\s"'<>\\]*)`)

// withoutQueries removes the parameters of queries that are secret.
func withoutQueries(text string) string {
	all := parameter.FindAllStringSubmatchIndex(text, -1)
	if all == nil {
		return text
	}
	var out strings.Builder
	from := 0
	for len(all) > 0 {
		n := 1 // parameters that follow one another: one query
		for n < len(all) && all[n][0] == all[n-1][1] && text[all[n][0]] != '?' {
			n++
		}
		query := all[:n]
		all = all[n:]
		names := make([]string, n)
		for i, m := range query {
			names[i] = text[m[4]:m[5]]
			if n, err := url.QueryUnescape(names[i]); err == nil {
				names[i] = n
			}
			names[i] = Fold(names[i])
		}
		out.WriteString(text[from:query[0][0]])
		first := text[query[0][2]:query[0][3]]
		for i, m := range query {
			if !secret(names[i], names) {
				out.WriteString(first + text[m[4]:m[1]])
				first = "&"
				if i+1 < n {
					first = text[query[i+1][2]:query[i+1][3]]
				}
			} else {
				value := text[m[6]:m[7]] // of a sentence, punctuation follows it
				out.WriteString(value[len(strings.TrimRight(value, ",.:)]}")):])
			}
		}
		from = query[n-1][1]
	}
	out.WriteString(text[from:])
	return out.String()
}

// Fold is the name of a parameter or a setting in small letters and digits alone, in which
// its spellings are the same: access-key and AccessKey.
func Fold(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return -1
	}, name)
}

var (
	secretParts = []string{"token", "signature", "password", "secret", "credential", "apikey", "accesskey", "accountkey", "subscriptionkey"}
	secretNames = []string{"sig", "jwt", "auth", "authorization", "passwd", "pwd", "hdnts", "hdnea", "googleaccessid", "keypairid"}
	// What stores add beside a signature, and what changes with it.
	besideSig       = []string{"sv", "ss", "srt", "sr", "se", "st", "sp", "spr", "sip", "si", "sdd", "skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", "ses"}
	besideSignature = []string{"expires", "policy", "ossexpires"}
)

// secret reports whether a parameter is one, or belongs to one of the same query.
func secret(name string, all []string) bool {
	switch {
	case strings.HasPrefix(name, "xamz"), strings.HasPrefix(name, "xgoog"), strings.HasPrefix(name, "xoss"), slices.Contains(secretNames, name):
		return true
	case strings.HasPrefix(name, "q") && slices.Contains(all, "qsignature"):
		return true
	case slices.Contains(besideSig, name):
		return slices.Contains(all, "sig")
	case slices.Contains(besideSignature, name):
		return slices.ContainsFunc(all, func(n string) bool { return strings.Contains(n, "signature") })
	}
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(name, part) })
}

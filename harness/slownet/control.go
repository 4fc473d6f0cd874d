package slownet

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// Control is the proxy's methods over HTTP, for tests in other languages. Every answer is
// JSON; an error is {"error": "..."} with status 400.
//
//	GET  /counts   Counts
//	GET  /link     Link
//	POST /link     changes what the body names of {"latency": "20ms", "connection":
//	               "90MB/s", "total": "250MB/s", "requests": 400, "burst": 40, "status":
//	               503, "code": "SlowDown", "retry_after": "1s"}
//	POST /rules    replaces the rules by the body: a rule a line, or a JSON list of them
//	POST /reset    begins the counts anew
//	POST /pause    closes the listener and all connections
//	POST /resume   opens the listener again
func (p *Proxy) Control() http.Handler {
	mux := http.NewServeMux()
	tell := func(w http.ResponseWriter, v any, err error) {
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			v = map[string]string{"error": err.Error()}
		}
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) { tell(w, p.Counts(), nil) })
	mux.HandleFunc("GET /link", func(w http.ResponseWriter, _ *http.Request) { tell(w, p.Link(), nil) })
	post := func(path string, f func(body []byte) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, req *http.Request) {
			b, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
			if err == nil {
				err = f(b)
			}
			tell(w, struct{}{}, err)
		})
	}
	post("/link", func(b []byte) error {
		l := p.Link()
		if err := l.UnmarshalJSON(b); err != nil {
			return err
		}
		p.SetLink(l)
		return nil
	})
	post("/rules", func(b []byte) error {
		var lines []string
		if json.Unmarshal(b, &lines) != nil {
			for line := range strings.Lines(string(b)) {
				if line = strings.TrimSpace(line); line != "" {
					lines = append(lines, line)
				}
			}
		}
		return p.SetRules(lines...)
	})
	post("/reset", func([]byte) error { p.Reset(); return nil })
	post("/pause", func([]byte) error { p.Pause(); return nil })
	post("/resume", func([]byte) error { return p.Resume() })
	return mux
}

package servers

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Moto starts moto's server, which has most services of AWS, in memory: STS, IAM and SSO
// are what it is here for; its S3 is not versitygw's equal, but another one. It checks no
// signatures.
func Moto(t testing.TB) *Server {
	t.Helper()
	python := installed(t, moto)
	p, port := start(t, func(port int) *exec.Cmd {
		return exec.Command(python, "-m", "moto.server", "-H", "127.0.0.1", "-p", fmt.Sprint(port))
	})
	key := awsKey{"testing", "testing", "us-east-1", "s3"}
	s := newServer(t, p, url(nil, port), nil, s3{key})
	s.Env["AWS_ENDPOINT_URL"] = s.URL
	s.Env["AWS_ACCESS_KEY_ID"] = key.id
	s.Env["AWS_SECRET_ACCESS_KEY"] = key.secret
	s.Env["AWS_REGION"] = key.region
	s.Env["AWS_CONFIG_FILE"] = os.DevNull
	s.Env["AWS_SHARED_CREDENTIALS_FILE"] = os.DevNull
	s.Env["AWS_EC2_METADATA_DISABLED"] = "true"
	return s.In(Bucket)
}

package slownet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Certificate is a key and a certificate that is its own root, both as PEM: the server is
// started with them, and clients trust the certificate.
type Certificate struct{ Cert, Key []byte }

// Certify makes a certificate for names and addresses, valid until a time. Tests use a time
// in the past for an expired certificate, and other names for that of another host.
func Certify(until time.Time, hosts ...string) (*Certificate, error) {
	failed := func(err error) (*Certificate, error) {
		return nil, errs.New(errs.Bug, "cannot make a certificate").Because(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return failed(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return failed(err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "slownet"},
		NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return failed(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return failed(err)
	}
	return &Certificate{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, nil
}

// Server is how a server shows the certificate.
func (c *Certificate) Server() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, errs.New(errs.Config, "cannot read the certificate").Because(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}, nil
}

// Client is how a client trusts it, and nothing else.
func (c *Certificate) Client() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Cert)
	return &tls.Config{RootCAs: roots}
}

package stagetest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Resolver finds the addresses of host names as hosts says, which is asked anew for each
// name; no address: there is no such host. An error is that of a name server that fails.
func Resolver(hosts func(name string) ([]string, error)) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe() // of a stream: messages have their length before them
		go answerNames(there, hosts)
		return here, nil
	}}
}

func answerNames(c net.Conn, hosts func(string) ([]string, error)) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(query) != nil || len(m.Questions) != 1 {
			return
		}
		answerName(&m, hosts)
		out, err := m.AppendPack(make([]byte, 2))
		if err != nil {
			return
		}
		binary.BigEndian.PutUint16(out, uint16(len(out)-2))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func answerName(m *dnsmessage.Message, hosts func(string) ([]string, error)) {
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	all, err := hosts(strings.TrimSuffix(q.Name.String(), "."))
	switch {
	case err != nil:
		m.RCode = dnsmessage.RCodeServerFailure
	case len(all) == 0:
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, ip := range all {
		var body dnsmessage.ResourceBody
		switch a := netip.MustParseAddr(ip); {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			body = &dnsmessage.AResource{A: a.As4()}
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: body})
	}
}

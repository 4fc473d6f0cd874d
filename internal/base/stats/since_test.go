package stats

import (
	"encoding/json"
	"testing"
	"time"
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// What limits, by what the books say: a case each, as a person would judge it.
func TestLimiting(t *testing.T) {
	for _, c := range []struct {
		name  string
		books func(s *Stream)
		want  string
	}{
		{"nothing was delivered", func(*Stream) {}, ""},
		{"the loop hardly waits", func(s *Stream) {
			deliver(s)
			s.Wait.Add(ms(20), 1, 0)
			s.Wait.Blocked(Output, ms(980))
			s.Decode.Add(ms(900), 10, 0)
		}, "training loop"},
		{"lanes are at work, decoding", func(s *Stream) {
			waits(s)
			s.Decode.Add(ms(1800), 10, 0)
			s.Decode.Blocked(Input, ms(100))
			time16(s.Transforms[0], ms(20))
		}, "decode"},
		{"lanes are at work, and a transform costs most of it", func(s *Stream) {
			waits(s)
			s.Decode.Add(ms(1800), 10, 0)
			time16(s.Transforms[0], ms(20))
			time16(s.Transforms[1], ms(100))
		}, "Normalize"},
		{"lanes wait for bytes", func(s *Stream) {
			waits(s)
			s.Decode.Add(ms(300), 10, 0)
			s.Decode.Blocked(Input, ms(1700))
		}, "read"},
		{"lanes may not go on, and closing batches is slow", func(s *Stream) {
			waits(s)
			s.Decode.Add(ms(300), 10, 0)
			s.Decode.Blocked(Output, ms(1500))
			s.Batch.Add(ms(900), 1, 0)
		}, "batch"},
		{"lanes may not go on, and sending is slow", func(s *Stream) {
			waits(s)
			s.Decode.Blocked(Output, ms(1900))
			s.Deliver.Add(ms(900), 1, 0)
		}, "deliver"},
		{"lanes may not go on, and choosing samples is slow", func(s *Stream) {
			waits(s)
			s.Decode.Blocked(Output, ms(1900))
			s.Batch.Add(ms(100), 1, 0)
			s.Deliver.Add(ms(100), 1, 0)
			s.Plan.Add(ms(900), 1, 0)
		}, "plan"},
		{"small samples, which readers fill in: reading costs most", func(s *Stream) {
			waits(s)
			s.Read.Add(ms(800), 10, 0)
			s.Decode.Add(ms(100), 10, 0)
		}, "read"},
		{"small samples: conversion costs most", func(s *Stream) {
			waits(s)
			s.Read.Add(ms(100), 10, 0)
			s.Decode.Add(ms(700), 10, 0)
		}, "decode"},
	} {
		s := (*Page)(nil).Stream(1, 2, []string{"Resize", "Normalize"})
		c.books(s)
		if got := s.Snapshot().Since(Snapshot{}).Limiting; got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

func deliver(s *Stream) { s.Delivered(Progress{Samples: 10, Batches: 1}) }

// waits is a loop that waits half of its time.
func waits(s *Stream) {
	deliver(s)
	s.Wait.Add(ms(500), 1, 0)
	s.Wait.Blocked(Output, ms(500))
}

// time16 is ten samples of which one was timed.
func time16(s *Stage, d time.Duration) {
	s.Count(10)
	s.Timed(d)
}

// Between two snapshots it counts what was done then, also when the earlier one
// has been written as JSON and read again.
func TestSince(t *testing.T) {
	now := second(10)
	p := newPage(make([]byte, smallRoom.bytes()), smallRoom, RoleEngine, 1, func() int64 { return now })
	s := p.Stream(1, 2, nil)
	s.Read.Add(time.Second, 100, 1000)
	s.Wait.Add(ms(900), 1, 0)
	s.Wait.Blocked(Output, ms(100))
	s.Wait.Queue(7)
	s.Delivered(Progress{Samples: 100, Batches: 10})
	now = second(12)
	text, err := json.Marshal(s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var before Snapshot
	if err := json.Unmarshal(text, &before); err != nil {
		t.Fatal(err)
	}
	s.Read.Add(time.Second, 300, 9000)
	s.Wait.Add(ms(100), 1, 0)
	s.Wait.Blocked(Output, ms(300))
	s.Wait.Queue(1)
	s.Wait.Queue(2)
	s.Delivered(Progress{Samples: 400, Batches: 40})
	now = second(14)
	got := s.Snapshot().Since(before)
	want := Interval{Seconds: 2, Samples: 150, Batches: 15, Bytes: 4500, WaitShare: 0.25, Queue: 1.5, Limiting: "read"}
	if got.Seconds != want.Seconds || got.Samples != want.Samples || got.Batches != want.Batches || got.Bytes != want.Bytes ||
		got.WaitShare < 0.2499 || got.WaitShare > 0.2501 || got.Queue != want.Queue || got.Limiting != want.Limiting {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if all := s.Snapshot().Since(Snapshot{}); all.Seconds != 4 || all.Samples != 100 {
		t.Errorf("since it was opened: %+v", all)
	}
	if told := s.Snapshot().SinceWaiting(before, 0.01); told.WaitShare != 0.01 || told.Limiting != "training loop" {
		t.Errorf("with the consumer's own share: %+v", told)
	}
}

package natskv

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAckSubjects(t *testing.T) {
	want := ackInfo{streamSeq: 42, consumerSeq: 7, unixNano: 1700000000000000001, pending: 3}
	good := []string{
		"$JS.ACK.KV_b.c1.1.42.7.1700000000000000001.3",
		"$JS.ACK.hub.AcCt.KV_b.c1.1.42.7.1700000000000000001.3",
		"$JS.ACK.hub.AcCt.KV_b.c1.1.42.7.1700000000000000001.3.x9_token",
		"$JS.ACK._.AcCt.KV_b.c1.1.42.7.1700000000000000001.3.a.b",
	}
	for _, s := range good {
		var p ackParser
		for range 2 { // the second time with the head kept
			got, ok := p.parse(s)
			if !ok || got != want {
				t.Errorf("parse(%q) = %+v, %v", s, got, ok)
			}
		}
	}
	bad := []string{
		"", "$JS.ACK.", "$JS.ACK", "_INBOX.x.1.2.3.4.5.6.7",
		"$JS.ACK.KV_b.c1.1.42.7.1700000000000000001",           // 8 tokens
		"$JS.ACK.d.KV_b.c1.1.42.7.1700000000000000001.3",       // 10 tokens
		"$JS.ACK.KV_b.c1.1.0.7.1700000000000000001.3",          // revision 0
		"$JS.ACK.KV_b.c1.1.42.0.1700000000000000001.3",         // delivery 0
		"$JS.ACK.KV_b.c1.1.4x2.7.1700000000000000001.3",        // not digits
		"$JS.ACK.KV_b.c1.1..7.1700000000000000001.3",           // empty token
		"$JS.ACK..c1.1.42.7.1700000000000000001.3",             // empty stream
		"$JS.ACK.KV_b.c1.1.42.7.1700000000000000001.",          // empty last token
		"$JS.ACK.KV_b.c1.1.18446744073709551615.7.1.3",         // no position: a resume after it could not be asked for
		"$JS.ACK.KV_b.c1.1.18446744073709551616.7.1.3",         // one past 64 bits
		"$JS.ACK.KV_b.c1.1.99999999999999999999999.7.1.3",      // far past
		"$JS.ACK.KV_b.c1.1.42.7.9223372036854775808.3",         // time past int64
		"$JS.ACK.KV_b.c1.1.42.7.1.-3", "$JS.ACK.a.b.c.d.e.f.g", // no numbers
	}
	for _, s := range bad {
		var p ackParser
		if _, ok := p.parse(good[0]); !ok {
			t.Fatal("good subject refused")
		}
		if got, ok := p.parse(s); ok || got != (ackInfo{}) {
			t.Errorf("parse(%q) = %+v, %v, want nothing", s, got, ok)
		}
	}
	var p ackParser
	top := fmt.Sprintf("$JS.ACK.s.c.1.%d.1.1.0", uint64(math.MaxUint64-1))
	if got, ok := p.parse(top); !ok || got.streamSeq != math.MaxUint64-1 {
		t.Errorf("parse(%q) = %+v, %v", top, got, ok)
	}
}

func TestDigits(t *testing.T) {
	for _, rest := range []string{"", ".", ".12345678", "x1234567", "\xff\xff\xff\xff\xff\xff\xff\xff", "/0000000", ":0000000"} {
		for n := range 20 {
			digitsOnly := "9081726354453627180"[:n]
			want := uint64(0)
			if n > 0 {
				var err error
				if want, err = strconv.ParseUint(digitsOnly, 10, 64); err != nil {
					t.Fatal(err)
				}
			}
			if got, end := digits("a"+digitsOnly+rest, 1); got != want || end != 1+n {
				t.Errorf("digits(%q) = %d to %d, want %d to %d", digitsOnly+rest, got, end, want, 1+n)
			}
		}
	}
}

func TestAckParserFollowsANewConsumer(t *testing.T) {
	var p ackParser
	for _, c := range []string{"c1", "c1", "c2", "longer", "c1"} {
		got, ok := p.parse("$JS.ACK.KV_b." + c + ".1.42.7.5.3")
		if !ok || got.streamSeq != 42 {
			t.Fatalf("consumer %s: %+v, %v", c, got, ok)
		}
	}
}

// splitAck is the plain way that the parser is measured against, and checked with.
func splitAck(reply string) (ackInfo, bool) {
	tokens := strings.Split(reply, ".")
	if len(tokens) < ackTokensLegacy || tokens[0] != "$JS" || tokens[1] != "ACK" {
		return ackInfo{}, false
	}
	at := 5
	if len(tokens) > ackTokensLegacy {
		if len(tokens) < ackTokensModern {
			return ackInfo{}, false
		}
		at = 7
	}
	var n [5]uint64
	for i := range n {
		v, err := strconv.ParseUint(tokens[at-1+i], 10, 64)
		if err != nil {
			return ackInfo{}, false
		}
		n[i] = v
	}
	return ackInfo{streamSeq: n[1], consumerSeq: n[2], unixNano: int64(n[3]), pending: n[4]}, true
}

func FuzzAckSubject(f *testing.F) {
	f.Add("$JS.ACK.KV_b.c1.1.42.7.1700000000000000001.3")
	f.Add("$JS.ACK.hub.AcCt.KV_b.c1.1.42.7.1700000000000000001.3.x")
	f.Add("$JS.ACK.hub.AcCt.KV_b.c1.1.42.7.17000000000000000010000000000.3.x")
	f.Fuzz(func(t *testing.T, reply string) {
		var p ackParser
		cold, ok := p.parse(reply)
		warm, warmOK := p.parse(reply)
		if ok != warmOK || cold != warm {
			t.Fatalf("cold %+v %v, warm %+v %v", cold, ok, warm, warmOK)
		}
		if !ok {
			return
		}
		want, wantOK := splitAck(reply)
		if !wantOK || cold != want || cold.streamSeq == 0 {
			t.Fatalf("parse(%q) = %+v, split says %+v %v", reply, cold, want, wantOK)
		}
	})
}

func ackSubjects() []string {
	out := make([]string, 10_000)
	for i := range out {
		out[i] = fmt.Sprintf("$JS.ACK.KV_routes.fold-Yt6gkq0Zb1.1.%d.%d.1700000%012d.%d", 1_000_000+i, i+1, i*997, 10_000-i)
	}
	return out
}

func BenchmarkAckParse10k(b *testing.B) {
	subjects := ackSubjects()
	b.ReportAllocs()
	defer reportCPU(b, len(subjects), cpuTime(b))
	for b.Loop() {
		var p ackParser
		for _, s := range subjects {
			if _, ok := p.parse(s); !ok {
				b.Fatal(s)
			}
		}
	}
}

func BenchmarkAckParseSplit10k(b *testing.B) {
	subjects := ackSubjects()
	b.ReportAllocs()
	defer reportCPU(b, len(subjects), cpuTime(b))
	for b.Loop() {
		for _, s := range subjects {
			if _, ok := splitAck(s); !ok {
				b.Fatal(s)
			}
		}
	}
}

// cpuTime is what the process has used so far: on shared cores it tells more than the wall clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCPU(b *testing.B, each int, since time.Duration) {
	b.Helper()
	b.ReportMetric(float64(cpuTime(b)-since)/float64(b.N)/float64(each), "cpu-ns/each")
}

package jslog

import (
	"encoding/json"
	"testing"
)

// FuzzAck: what the short way reads, encoding/json reads the same.
func FuzzAck(f *testing.F) {
	for _, text := range []string{
		`{"stream":"NOVA=a=b","seq":1}`, `{"stream":"NOVA=a=b","domain":"hub","seq":18446744073709551615}`, `{"stream":"s","seq":18446744073709551616}`,
		`{"stream":"s","seq":007}`, `{"stream":"s","seq":0}`, `{"stream":"s","seq":}`, `{"stream":"s","seq":1,"duplicate":true}`, `{"stream":"s\"","seq":1}`,
		`{"stream":"s","seq":1}x`, `{"stream":"s","seq":1.5}`, `{"stream":"s","seq":-1}`, `{"error":{"code":400,"err_code":10071},"stream":"s","seq":0}`, "", "{",
		`{"stream":"s","domain":"d"}`, `{"stream":"s","domain":"d",}`, `{"stream":"s"}`, `{"stream":"` + "\xff" + `","seq":2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		seq, ok := storedSeq(b)
		if !ok {
			return
		}
		var want ack
		if err := json.Unmarshal(b, &want); err != nil || want.Seq != seq || want.Error != nil {
			t.Fatalf("%q gives %d, not %+v, %v", b, seq, want, err)
		}
	})
}

func TestAcksOfStoredMessagesAreReadTheShortWay(t *testing.T) {
	for text, want := range map[string]uint64{
		`{"stream":"NOVA=demo=events","seq":1}`:                               1,
		`{"stream":"NOVA=demo=events","domain":"hub","seq":9007199254740993}`: 9007199254740993,
	} {
		b := []byte(text)
		if seq, ok := storedSeq(b); !ok || seq != want {
			t.Errorf("%s gives %d, %v", text, seq, ok)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = readAck(b) }); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
	a, err := readAck([]byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"s","seq":0}`))
	if err != nil || a.Error == nil || a.Error.Code != 400 {
		t.Errorf("%+v, %v", a, err)
	}
}

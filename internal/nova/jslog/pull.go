package jslog

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// readAhead bounds the bytes of frames that a reader is sent before it asks; a log of large messages has more.
	readAhead = 4 << 20
	// aheadMessages bounds their number, and aheadStatuses what a reader that takes nothing is told of its requests: each
	// has a few heartbeats, and an end. What comes beyond is dropped, which is found by the count of deliveries.
	aheadMessages = 4096
	aheadStatuses = 64

	requestExpires = 30 * time.Second
	heartbeat      = 5 * time.Second
	// maxQuiet is after how long without a word a consumer is taken for lost.
	maxQuiet = 2*heartbeat + 2*time.Second
	// inactive is how long the server keeps a consumer that nobody asks.
	inactive = 5 * time.Minute
)

// ahead is what was asked for and has not been taken yet, or been told to come no more.
type ahead struct {
	most            int // bytes, at least four times the largest message
	messages, bytes int
}

func (a *ahead) none() { a.messages, a.bytes = 0, 0 }

// took notes a delivery of so many bytes.
func (a *ahead) took(n int) { a.gone(1, n) }

func (a *ahead) gone(messages, bytes int) {
	a.messages = max(a.messages-messages, 0)
	a.bytes = max(a.bytes-bytes, 0)
}

// want is what to ask for now; 0 while half of what may be asked for is still to come. It is room for one message at
// least, a quarter of the most: a request that has less is ended at once. That exceeds the most only where half the messages
// have come in few bytes, so two such requests are under way at worst, and half more than the most.
func (a *ahead) want() (messages, bytes int) {
	if a.messages > aheadMessages/2 && a.bytes > a.most/2 {
		return 0, 0
	}
	return aheadMessages - a.messages, max(a.most-a.bytes, a.most/4)
}

// ask asks the consumer for more when it is time.
func (f *Frames) ask() error {
	messages, bytes := f.want()
	if messages == 0 {
		return nil
	}
	body := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"expires":%d,"idle_heartbeat":%d}`, messages, bytes, requestExpires, heartbeat)
	if err := f.l.nc.PublishRequest(f.l.api("CONSUMER.MSG.NEXT", f.consumer), f.sub.Subject, body); err != nil {
		return err
	}
	f.messages, f.bytes = f.messages+messages, f.bytes+bytes
	return nil
}

// told takes what the server says of a request; an error says that the consumer is lost. delivered is what has come.
func (a *ahead) told(m *nats.Msg, status string, delivered uint64) error {
	switch status {
	case "100":
		if sent, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && sent > delivered {
			return fmt.Errorf("the consumer sent %d messages, %d came", sent, delivered)
		}
		return nil
	case "408", "409":
		messages, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err == nil {
			bytes, _ := strconv.Atoi(m.Header.Get("Nats-Pending-Bytes")) // none where none were asked for
			a.gone(messages, bytes)
			return nil
		}
	}
	return errors.New("status " + status + " " + m.Header.Get("Description"))
}

// api is the subject of a request about a consumer.
func (l *Log) api(what, consumer string) string {
	prefix := "$JS.API."
	switch o := l.js.Options(); {
	case o.APIPrefix != "":
		prefix = strings.TrimSuffix(o.APIPrefix, ".") + "."
	case o.Domain != "":
		prefix = "$JS." + o.Domain + ".API."
	}
	return prefix + what + "." + l.name + "." + consumer
}

// delivery is what the reply subject of a message tells.
type delivery struct {
	streamSeq, consumerSeq uint64
	unixNano               int64
}

// deliveryOf reads $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<dseq>.<ts>.<pending>, before whose stream newer servers
// have a domain and an account, and behind whose end they may have more.
func deliveryOf(reply string) (d delivery, ok bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return d, false
	}
	skip := 3 // stream, consumer, delivered
	if n := strings.Count(rest, "."); n >= 8 {
		skip += 2
	} else if n != 6 {
		return d, false
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var at uint64
	for _, to := range []*uint64{&d.streamSeq, &d.consumerSeq, &at} {
		var number string
		number, rest, _ = strings.Cut(rest, ".")
		v, err := strconv.ParseUint(number, 10, 64)
		if err != nil || v == 0 || v > math.MaxInt64 {
			return delivery{}, false
		}
		*to = v
	}
	d.unixNano = int64(at)
	return d, true
}

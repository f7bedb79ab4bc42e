package server_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestMessagesOfAReadAreCompressed for who asks for that, and for nobody else, the first and those behind it, and each has its records.
func TestMessagesOfAReadAreCompressed(t *testing.T) {
	ctx := timed(t)
	r := serve(t, natstest.New(t), server.Options{})
	r.create(ctx)
	batch := &novav1.Batch{}
	for range 900 {
		batch.Records = append(batch.Records, &novav1.Record{Body: []byte(strings.Repeat("r", 1000))})
	}
	const batches = 4
	for range batches {
		if _, err := r.rpc().Append(ctx, connect.NewRequest(&novav1.AppendRequest{Addr: addr, Batch: batch})); err != nil {
			t.Fatal(err)
		}
	}
	asks, err := proto.Marshal(&novav1.ReadRequest{Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	asks = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(asks))), asks...)
	for _, encoding := range []string{"", "gzip"} {
		for kind, header := range map[string]string{"application/connect+proto": "Connect-Accept-Encoding", "application/grpc-web+proto": "Grpc-Accept-Encoding"} {
			q, err := http.NewRequestWithContext(ctx, "POST", r.at+novav1connect.DataPlaneServiceReadProcedure, bytes.NewReader(asks))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Content-Type", kind)
			q.Header.Set("Connect-Protocol-Version", "1")
			if encoding != "" {
				q.Header.Set(header, encoding)
			}
			answer, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			large, records := 0, 0
			for len(body) > 0 {
				flags, n := body[0], binary.BigEndian.Uint32(body[1:])
				message := body[5 : 5+n]
				body = body[5+n:]
				if flags > 1 { // the end
					continue
				}
				if flags == 0 {
					var m novav1.ReadResponse
					if err := proto.Unmarshal(message, &m); err != nil {
						t.Fatal(err)
					}
					if len(m.Records) > 0 {
						large++
					}
					records += len(m.Records)
				}
				if encoding != "" && flags == 1 {
					large++
				}
				if encoding != "" && n > 4<<10 && flags == 0 || encoding == "" && flags != 0 {
					t.Errorf("%s, %q: a message of %d bytes has flags %d", kind, encoding, n, flags)
				}
			}
			if large < 3 || encoding == "" && records != batches*len(batch.Records) {
				t.Errorf("%s, %q: %d messages with %d records", kind, encoding, large, records)
			}
		}
	}
}

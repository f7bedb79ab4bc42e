package natskv

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// serverLevel is the JetStream API level: as the account says, or, where asking is not allowed, as the version of the
// server that the connection is with implies.
func serverLevel(ctx context.Context, js jetstream.JetStream, timeout time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if info, err := js.AccountInfo(ctx); err == nil {
		return info.API.Level
	}
	return levelOfVersion(js.Conn().ConnectedServerVersion())
}

func levelOfVersion(version string) int {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return 0
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	switch {
	case err1 != nil || err2 != nil:
		return 0
	case major > 2 || major == 2 && minor >= 12:
		return levelAtomicPublish
	case major == 2 && minor == 11:
		return levelMessageTTL
	}
	return 0
}

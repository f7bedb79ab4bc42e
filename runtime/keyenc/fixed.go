package keyenc

import "fmt"

const lowerHex = "0123456789abcdef"

const uuidLen = 36

func uuidDash(i int) bool { return i == 8 || i == 13 || i == 18 || i == 23 }

// AppendUUID appends the 36 lower-case characters of id.
func AppendUUID(dst []byte, id [16]byte) []byte {
	for i, c := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, lowerHex[c>>4], lowerHex[c&15])
	}
	return dst
}

// ParseUUID reads a UUID token, of any version and variant.
func ParseUUID(token string) (id [16]byte, err error) {
	if len(token) != uuidLen {
		return id, formErr(EncUUID, token, fmt.Sprintf("%d characters, want %d", len(token), uuidLen))
	}
	n, upper := 0, false
	for i := 0; i < len(token); i++ {
		if uuidDash(i) {
			if token[i] != '-' {
				return [16]byte{}, formErr(EncUUID, token, fmt.Sprintf("no dash at offset %d", i))
			}
			continue
		}
		d, ok := hexDigit(token[i])
		if !ok {
			return [16]byte{}, formErr(EncUUID, token, fmt.Sprintf("no hexadecimal digit at offset %d", i))
		}
		upper = upper || token[i] >= 'A' && token[i] <= 'F'
		id[n/2] = id[n/2]<<4 | d
		n++
	}
	if upper {
		return [16]byte{}, canonErr(EncUUID, token, "upper-case digit")
	}
	return id, nil
}

const (
	nanosDigits = 9
	maxNanos    = 999_999_999
)

// AppendTime appends INT of seconds and nine digits of nanoseconds, which count forward from the second: 0 to
// 999,999,999, else the error says so. FloorTime brings a Duration's pair into that form.
func AppendTime(dst []byte, seconds int64, nanos int32) ([]byte, error) {
	if nanos < 0 || nanos > maxNanos {
		return dst, formErr(EncTime, fmt.Sprintf("%d+%dns", seconds, nanos), "nanoseconds not in 0..999999999")
	}
	dst = AppendInt(dst, seconds)
	for div := int32(100_000_000); div > 0; div /= 10 {
		dst = append(dst, '0'+byte(nanos/div%10))
	}
	return dst, nil
}

// ParseTime reads a TIME token into its floor seconds and nanoseconds.
func ParseTime(token string) (seconds int64, nanos int32, err error) {
	cut := len(token) - nanosDigits
	if cut < 0 {
		return 0, 0, formErr(EncTime, token, "too short")
	}
	u, ok, _ := parseDigits(token[cut:], 0)
	if !ok {
		return 0, 0, formErr(EncTime, token, "want nine digits of nanoseconds at the end")
	}
	seconds, err = ParseInt[int64](token[:cut])
	if err != nil {
		return 0, 0, timeErr(token, err)
	}
	return seconds, int32(u), nil
}

// timeErr says of the whole token what was found in its seconds.
func timeErr(token string, err error) error {
	e := &TokenError{Enc: EncTime, Token: token, Reason: err.Error()}
	if inner, ok := err.(*TokenError); ok {
		e.NotCanonical, e.Reason = inner.NotCanonical, "seconds: "+inner.Reason
	}
	return e
}

// FloorTime turns seconds and nanoseconds of the same sign, as a Duration has them, into floor seconds and
// nanoseconds of 0 to 999,999,999. ok is false when the result is out of range or nanos is a second or more.
func FloorTime(seconds int64, nanos int32) (floor int64, forward int32, ok bool) {
	switch {
	case nanos > maxNanos || nanos < -maxNanos:
		return 0, 0, false
	case nanos >= 0:
		return seconds, nanos, true
	case seconds == -1<<63:
		return 0, 0, false
	}
	return seconds - 1, nanos + maxNanos + 1, true
}

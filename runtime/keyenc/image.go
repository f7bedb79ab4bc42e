package keyenc

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// Image is the set of tokens that one key variable can have: those of an encoding for a kind. Two variables, or a
// variable and a literal, at the same place of two key patterns can meet only in a token that is in both images.
type Image struct {
	Enc  Encoding
	Kind Kind
	// Names are the enum's value names, for EncEnumName only.
	Names []string
}

// InImage says whether the encoding writes this token for some value of the kind. It is false for every token when the
// encoding does not fit the kind, and for ENUM_NAME, whose names only an Image has.
func InImage(e Encoding, k Kind, token string) bool { return Image{Enc: e, Kind: k}.Contains(token) }

// SampleToken is a token of the image, a short one, preferably of letters and digits; false when there is none.
func SampleToken(e Encoding, k Kind) (string, bool) { return Image{Enc: e, Kind: k}.Sample() }

// witnesses are the shortest plain tokens of most pairs of images: trying them saves the walk.
var witnesses = [...]string{"a", "0", "a0", "00", "pa0", "00000000", "pa0000000000"}

// Common is a token that both images contain, a short one, preferably of letters and digits; false when the images
// have no token in common. It is exact, and takes up to some milliseconds where one of them is of integers.
func Common(a, b Image) (string, bool) {
	if !a.Enc.Fits(a.Kind) || !b.Enc.Fits(b.Kind) {
		return "", false
	}
	for _, w := range witnesses {
		if a.Contains(w) && b.Contains(w) {
			return w, true
		}
	}
	x, y := newAutomaton(a.pattern()), newAutomaton(b.pattern())
	if w, ok := shortest(x, y, plainBytes); ok {
		return w, true
	}
	return shortest(x, y, plainBytes+"-_=/")
}

// Sample is SampleToken for an image.
func (m Image) Sample() (string, bool) { return Common(m, m) }

// Contains says whether the token is in the image.
func (m Image) Contains(token string) bool {
	if !m.Enc.Fits(m.Kind) {
		return false
	}
	var err error
	switch m.Enc {
	case EncESC:
		if m.Kind == KindTail {
			_, err = ParseTail(token)
			return err == nil && strings.IndexByte(token, '.') < 0
		}
		_, err = ParseESC(token)
	case EncVerbatim:
		_, err = ParseVerbatim(token)
	case EncInt:
		err = m.parseInt(token, ParseInt[int32], ParseInt[int64], ParseInt[uint32], ParseInt[uint64])
	case EncDecimal:
		err = m.parseInt(token, ParseDecimal[int32], ParseDecimal[int64], ParseDecimal[uint32], ParseDecimal[uint64])
	case EncHex:
		if m.Kind.integer() {
			err = m.parseInt(token, ParseHexInt[int32], ParseHexInt[int64], ParseHexInt[uint32], ParseHexInt[uint64])
		} else {
			_, err = ParseHex(token)
		}
	case EncBool:
		_, err = ParseBool(token)
	case EncUUID:
		_, err = ParseUUID(token)
	case EncTime:
		_, _, err = ParseTime(token)
	case EncEnumName:
		return IsToken(token) && slices.Contains(m.Names, token)
	}
	return err == nil
}

func (m Image) parseInt(token string, i32 func(string) (int32, error), i64 func(string) (int64, error),
	u32 func(string) (uint32, error), u64 func(string) (uint64, error)) (err error) {
	switch m.Kind {
	case KindInt64:
		_, err = i64(token)
	case KindUint32:
		_, err = u32(token)
	case KindUint64:
		_, err = u64(token)
	default: // KindInt32, KindEnum
		_, err = i32(token)
	}
	return err
}

// plainBytes are in the order in which a witness prefers them: of integers, small positive ones are the plainest.
const plainBytes = "apbcdefghijklmnoqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// automaton is the deterministic form of a pattern, made as far as it is walked. State 0 is dead, 1 the start.
type automaton struct {
	prog   *syntax.Prog
	ids    map[string]int
	sets   [][]uint32 // of a state: the instructions that it waits at, sorted
	accept []bool
	edges  []map[byte]int
}

func newAutomaton(pattern string) *automaton {
	a := &automaton{ids: map[string]int{}}
	a.state(nil)
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return a
	}
	if a.prog, err = syntax.Compile(re.Simplify()); err != nil {
		return a
	}
	a.state(a.closure([]uint32{uint32(a.prog.Start)}))
	return a
}

// closure is what the instructions lead to without reading a byte.
func (a *automaton) closure(from []uint32) []uint32 {
	var out []uint32
	seen := map[uint32]bool{}
	for stack := from; len(stack) > 0; {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch in := &a.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstFail:
		default:
			out = append(out, pc)
		}
	}
	slices.Sort(out)
	return out
}

func (a *automaton) state(set []uint32) int {
	var key strings.Builder
	for _, pc := range set {
		key.Write([]byte{byte(pc >> 24), byte(pc >> 16), byte(pc >> 8), byte(pc)})
	}
	if id, ok := a.ids[key.String()]; ok {
		return id
	}
	id := len(a.sets)
	a.ids[key.String()] = id
	a.sets = append(a.sets, set)
	a.edges = append(a.edges, map[byte]int{})
	a.accept = append(a.accept, slices.ContainsFunc(set, func(pc uint32) bool {
		return a.prog.Inst[pc].Op == syntax.InstMatch
	}))
	return id
}

func (a *automaton) step(from int, c byte) int {
	if to, ok := a.edges[from][c]; ok {
		return to
	}
	var next []uint32
	for _, pc := range a.sets[from] {
		if in := &a.prog.Inst[pc]; in.Op != syntax.InstMatch && in.MatchRune(rune(c)) {
			next = append(next, in.Out)
		}
	}
	to := a.state(a.closure(next))
	a.edges[from][c] = to
	return to
}

// shortest walks both automata in step, breadth first, to the first string that both accept.
func shortest(x, y *automaton, alphabet string) (string, bool) {
	type pair struct{ x, y int }
	type node struct {
		pair
		from int
		by   byte
	}
	if len(x.sets) < 2 || len(y.sets) < 2 {
		return "", false
	}
	nodes := []node{{pair: pair{1, 1}}}
	seen := map[pair]bool{{1, 1}: true}
	for at := 0; at < len(nodes); at++ {
		for i := 0; i < len(alphabet); i++ {
			c := alphabet[i]
			p := pair{x.step(nodes[at].x, c), y.step(nodes[at].y, c)}
			if p.x == 0 || p.y == 0 || seen[p] {
				continue
			}
			seen[p] = true
			nodes = append(nodes, node{p, at, c})
			if !x.accept[p.x] || !y.accept[p.y] {
				continue
			}
			var w []byte
			for n := len(nodes) - 1; n > 0; n = nodes[n].from {
				w = append(w, nodes[n].by)
			}
			slices.Reverse(w)
			return string(w), true
		}
	}
	return "", false
}

package sequencer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

func TestLostAnswer(t *testing.T) {
	for _, lost := range [][]int{{1}, {2}, {3}, {1, 2}, {2, 3}, {1, 2, 3}} {
		trouble(t, 8, func(w *troubled) {
			w.log.script(nth(losesAnswer, lost...))
			w.submit(protocol.Append{}, "a", "b", "c")
			w.after(10 * time.Second)
			w.want("0", "a")
			w.want("1", "b")
			w.want("2", "c")
			w.wantLog("a b c")
			if w.log.takeovers != 2 || !slices.Equal(w.order, []string{"a", "b", "c"}) {
				t.Errorf("%d takeovers, answers in the order %v", w.log.takeovers, w.order)
			}
		})
	}
}

// TestRefusedInTheWindow: all behind a message that is refused, lost or not sent is refused by the chain, and all are sent
// again in their order and with their numbers.
func TestRefusedInTheWindow(t *testing.T) {
	for _, v := range []verdict{refuses, losesMessage, failsSend, delays} {
		for at := 1; at <= 4; at++ {
			trouble(t, 8, func(w *troubled) {
				w.log.script(nth(v, at))
				w.submit(protocol.Append{}, "a", "b", "c", "d")
				w.after(10 * time.Second)
				w.log.land() // what is late comes to nothing
				for i, name := range []string{"a", "b", "c", "d"} {
					w.want(fmt.Sprint(i), name)
				}
				w.wantLog("a b c d")
				if w.log.takeovers != 2 {
					t.Errorf("%d takeovers", w.log.takeovers)
				}
			})
		}
	}
}

// TestLateAnswer: an answer that comes after the frame was settled, or sent again, changes nothing.
func TestLateAnswer(t *testing.T) {
	trouble(t, 4, func(w *troubled) {
		w.log.script(nth(delays, 1, 2))
		w.submit(protocol.Append{}, "a", "b")
		w.after(time.Second)
		w.want("waits", "a", "b")
		w.log.land()
		synctest.Wait()
		w.want("0", "a")
		w.want("1", "b")
		if w.log.takeovers != 1 {
			t.Errorf("%d takeovers for answers that came in time", w.log.takeovers)
		}
		w.log.script(nth(delays, 1))
		w.submit(protocol.Append{}, "c")
		w.after(6 * time.Second)
		w.want("2", "c") // sent again
		w.log.land()
		w.submit(protocol.Append{}, "d")
		w.want("3", "d")
		w.wantLog("a b c d")
	})
}

// TestRenewalWithoutAnswer: a proof whose answer is lost, before frames that are in the log.
func TestRenewalWithoutAnswer(t *testing.T) {
	for _, lost := range [][]int{{1}, {1, 2}} {
		trouble(t, 4, func(w *troubled) {
			w.log.script(nth(losesAnswer, lost...))
			w.submit(protocol.Append{Token: "other"}, "x") // its refusal needs a proof
			w.submit(protocol.Append{}, "a")
			w.after(10 * time.Second)
			w.want("fenced", "x")
			w.want("0", "a")
			if err := w.l.Err(); err != nil {
				t.Errorf("the leader has ended: %v", err)
			}
			w.wantLog("a")
		})
	}
}

// TestOutdatedRead: the read that is to settle a frame is answered by a server whose log is older.
func TestOutdatedRead(t *testing.T) {
	trouble(t, 4, func(w *troubled) {
		w.log.script(nth(losesAnswer, 1, 2))
		w.log.outdate(2)
		w.submit(protocol.Append{}, "a", "b")
		w.after(10 * time.Second)
		w.want("0", "a")
		w.want("1", "b")
		w.wantLog("a b")
		if w.log.outdated != 0 {
			t.Error("no read was outdated")
		}
	})
}

// TestAwayForLong: the log does not come back within RecoverTimeout. What was sent may be stored, what waited is not, and
// all fails in the order in which it came.
func TestAwayForLong(t *testing.T) {
	trouble(t, 2, func(w *troubled) { // a window of one
		w.log.script(nil)
		w.log.setAway(true)
		w.submit(protocol.Append{}, "sent", "waits")
		w.submit(protocol.Append{Token: "other"}, "asks")
		w.after(6 * time.Second) // recovery has begun
		w.submit(protocol.Append{}, "queued", "last")
		w.after(18 * time.Second)
		w.want("waits", "sent", "waits", "asks", "queued", "last")
		w.after(2 * time.Second)
		w.want("indefinite", "sent")
		w.want("nothing", "waits", "asks", "queued", "last")
		if want := []string{"sent", "waits", "asks", "queued", "last"}; !slices.Equal(w.order, want) {
			t.Errorf("failed in the order %v, want %v", w.order, want)
		}
		if err := w.l.Err(); !errors.Is(err, errAway) || !errors.Is(err, ErrTimeout) {
			t.Errorf("it ended with %v", err)
		}
		err := w.l.Submit(w.t.Context(), Append{Records: bodies("after")}, func(Result) { t.Error("answered twice") })
		if away := new(UnavailableError); !errors.As(err, &away) || away.Indefinite {
			t.Errorf("a batch after the end: %v", err)
		}
		if _, err := w.l.Stands(w.t.Context()); !errors.As(err, new(*UnavailableError)) {
			t.Errorf("a question after the end: %v", err)
		}
	})
}

// TestAwayForAWhile: the log comes back before RecoverTimeout is over, and nothing has failed.
func TestAwayForAWhile(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.log.setAway(true)
		w.submit(protocol.Append{}, "a", "b")
		w.after(20 * time.Second)
		w.log.setAway(false)
		w.after(time.Second)
		w.want("0", "a")
		w.want("1", "b")
		w.wantLog("a b")
	})
}

// TestNothingGetsIn: the log answers and lets itself be led, and refuses each frame. The leader does not try for ever, nor
// as fast as it can.
func TestNothingGetsIn(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.log.script(func(int, jslog.Message) verdict { return refuses })
		w.submit(protocol.Append{}, "a", "b")
		w.after(19 * time.Second)
		w.want("waits", "a", "b")
		w.after(2 * time.Second)
		w.want("nothing", "a", "b")
		if w.log.takeovers < 10 || w.log.takeovers > 100 {
			t.Errorf("%d takeovers in 20 s", w.log.takeovers)
		}
	})
	trouble(t, 2, func(w *troubled) { // now and then one gets in: it goes on
		w.log.script(func(n int, _ jslog.Message) verdict {
			if n%6 == 0 {
				return delivers
			}
			return losesMessage
		})
		w.submit(protocol.Append{}, "a", "b")
		w.after(9 * time.Minute)
		if w.l.Err() == nil {
			t.Error("five losses of 5 s in a row are longer than 20 s")
		}
	})
	trouble(t, 2, func(w *troubled) {
		w.log.script(func(n int, _ jslog.Message) verdict {
			if n%4 == 0 {
				return delivers
			}
			return losesMessage
		})
		w.submit(protocol.Append{}, "a", "b", "c", "d")
		w.after(2 * time.Minute)
		w.want("3", "d")
		w.after(time.Hour) // the trouble is over, and counts for nothing in the next
		w.log.script(nth(losesAnswer, 1))
		w.submit(protocol.Append{}, "e")
		w.after(10 * time.Second)
		w.want("4", "e")
	})
}

func TestStopDuringTrouble(t *testing.T) {
	trouble(t, 4, func(w *troubled) {
		w.log.script(nth(losesMessage, 1))
		w.submit(protocol.Append{}, "a", "b")
		stopped := make(chan struct{})
		go func() {
			w.stop()
			close(stopped)
		}()
		synctest.Wait()
		w.submit(protocol.Append{}, "late")
		w.want("nothing", "late")
		<-stopped
		w.want("0", "a")
		w.want("1", "b")
		w.wantLog("a b")
		if w.log.holder != "" || !errors.Is(w.l.Err(), ErrStopped) {
			t.Errorf("the log names %q; %v", w.log.holder, w.l.Err())
		}
	})
	trouble(t, 4, func(w *troubled) { // the last word's answer is lost
		w.log.script(nth(losesAnswer, 1))
		w.stop()
		if w.log.holder != "" || w.l.Err() == nil {
			t.Errorf("the log names %q; %v", w.log.holder, w.l.Err())
		}
	})
	trouble(t, 4, func(w *troubled) { // the last word is refused
		w.log.script(nth(refuses, 1))
		w.stop()
		if w.log.holder != "" || !errors.Is(w.l.Err(), ErrStopped) {
			t.Errorf("the log names %q; %v", w.log.holder, w.l.Err())
		}
	})
}

// TestFenceDuringTrouble: a fence that comes while a frame is unsettled lies behind it, and so does its boundary.
func TestFenceDuringTrouble(t *testing.T) {
	for _, v := range []verdict{losesAnswer, losesMessage, refuses} {
		trouble(t, 4, func(w *troubled) {
			w.log.script(nth(v, 1))
			w.submit(protocol.Append{}, "a")
			answer := w.fence("gen-1")
			w.submit(protocol.Append{}, "old")
			w.submit(protocol.Append{Token: "gen-1"}, "b")
			if v != refuses {
				w.want("waits", "a", "old", "b")
			}
			tail, err := answer()
			if err != nil || tail.SeqNum != 1 {
				t.Errorf("fence: %+v, %v", tail, err)
			}
			w.after(10 * time.Second)
			w.want("0", "a")
			w.want("fenced", "old")
			w.want("1", "b")
			w.wantLog("a b")
		})
	}
}

// TestFenceLost: a fence that is not in the log for sure is answered so, and whoever it would have locked out is told that
// nothing was written, and not that it is fenced out.
func TestFenceLost(t *testing.T) {
	trouble(t, 4, func(w *troubled) {
		w.log.script(nil)
		w.log.setAway(true)
		answer := w.fence("gen-1")
		w.submit(protocol.Append{}, "old")
		w.after(30 * time.Second)
		_, err := answer()
		if away := new(UnavailableError); !errors.As(err, &away) || !away.Indefinite {
			t.Errorf("the fence: %v", err)
		}
		w.want("nothing", "old")
	})
}

// TestProofOnALostFence: a refusal that waits for a fence that was not sent yet is none of the fence's.
func TestProofOnALostFence(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.log.setAway(true)
		w.submit(protocol.Append{}, "a")
		answer := w.fence("gen-1")               // waits for the window
		w.submit(protocol.Append{}, "old")       // refused, behind the fence's link
		w.log.script(nil)                        // nothing of it arrives
		w.after(6 * time.Second)                 // a is unknown
		w.log.setAway(false)                     // and settled by leading anew
		w.log.script(nth(losesMessage, 2, 3, 4)) // a is sent again; the fence is lost
		w.after(10 * time.Second)
		w.log.setAway(true)
		w.after(40 * time.Second)
		if _, err := answer(); err == nil {
			t.Error("the fence was lost")
		}
		w.want("0", "a")
		w.want("nothing", "old")
	})
}

// TestReplaced: after another node has taken over, late frames are refused, what was admitted fails, and the leader ends.
func TestReplaced(t *testing.T) {
	trouble(t, 1, func(w *troubled) {
		// With one control subject, the takeover and the opening frame are as long as the chain's first two: the chain
		// check of the third matches by accident.
		w.log.script(nth(delays, 1, 2, 3))
		w.submit(protocol.Append{}, "a", "b", "c")
		w.other(func(*Leader) { w.log.land() })
		w.after(10 * time.Second)
		w.want("nothing", "a", "b", "c")
		w.wantLog("")
		if err := w.l.Err(); !errors.Is(err, ErrSuperseded) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestReplacedBehindARenewal: a takeover and its opening frame are where the renewal and the first frame behind it were to
// be. The frame that comes third must not take them for its own.
func TestReplacedBehindARenewal(t *testing.T) {
	for n := range 4 {
		trouble(t, 1, func(w *troubled) {
			w.log.script(func(int, jslog.Message) verdict { return delays })
			w.submit(protocol.Append{Token: "other"}, "x") // its refusal needs a renewal
			w.submit(protocol.Append{}, []string{"a", "b", "c"}[:n]...)
			w.log.script(nil)
			two, err := Start(w.t.Context(), w.log, Options{Node: "two"})
			if err != nil {
				t.Fatal(err)
			}
			w.log.land()
			w.after(10 * time.Second)
			w.want("nothing", "x")
			w.want("nothing", []string{"a", "b", "c"}[:n]...)
			w.wantLog("")
			if s, err := two.Stands(w.t.Context()); err != nil || s.Tail.SeqNum != 0 {
				t.Errorf("the other leader stands at %+v, %v", s, err)
			}
			if err := two.Stop(w.t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLedInBetween: another node led and wrote, and the log names this one again. What is not in the log fails for good,
// what is in the log is acknowledged, and no later batch gets into the log before what was lost.
func TestLedInBetween(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.log.script(func(n int, _ jslog.Message) verdict { return []verdict{losesAnswer, delays}[min(n-1, 1)] })
		w.submit(protocol.Append{}, "a", "b", "c") // c waits for the window
		w.log.script(nil)
		w.other(func(l *Leader) {
			if _, err := l.Append(w.t.Context(), Append{Records: bodies("x")}); err != nil {
				t.Error(err)
			}
		})
		w.log.name("one") // a takeover of this node that was long under way
		w.after(10 * time.Second)
		w.want("0", "a")
		w.want("nothing", "b", "c")
		w.wantLog("a x")
		if err := w.l.Err(); !errors.Is(err, ErrSuperseded) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestRemovedBeforeSettled: retention removes a frame whose answer was lost. It is not said that nothing was written.
func TestRemovedBeforeSettled(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.log.script(nth(losesAnswer, 1))
		w.submit(protocol.Append{}, "a")
		w.log.script(nil)
		w.other(func(l *Leader) {
			if _, err := l.Append(w.t.Context(), Append{Records: bodies("x")}); err != nil {
				t.Error(err)
			}
		})
		w.log.name("one")
		w.log.cut(len(w.log.frames)-1, len(w.log.frames))
		w.after(10 * time.Second)
		w.want("indefinite", "a")
		if err := w.l.Err(); !errors.Is(err, ErrSuperseded) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestLogLost: a log that has lost what it acknowledged does not get the same numbers again.
func TestLogLost(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.submit(protocol.Append{}, "a", "b")
		w.want("1", "b")
		w.log.cut(0, len(w.log.frames)-1)
		w.log.script(nth(refuses, 1))
		w.submit(protocol.Append{}, "c")
		w.after(time.Minute)
		if err := w.l.Err(); !errors.Is(err, jslog.ErrDamaged) {
			t.Errorf("it ended with %v", err)
		}
		w.wantLog("a")
	})
}

// TestTakenOverUnderway: a takeover of this same node that was long under way comes between its frames.
func TestTakenOverUnderway(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.submit(protocol.Append{}, "a")
		if _, err := w.log.TakeOver(w.t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		w.submit(protocol.Append{}, "b", "c")
		w.after(time.Second)
		w.want("0", "a")
		w.want("1", "b")
		w.want("2", "c")
		w.wantLog("a b c")
	})
}

// TestMissDuringTrouble: a miss is answered when what it counted on is settled.
func TestMissDuringTrouble(t *testing.T) {
	trouble(t, 4, func(w *troubled) {
		w.log.script(nth(losesMessage, 1))
		w.submit(protocol.Append{}, "a")
		w.submit(protocol.Append{HasMatch: true}, "x")
		w.want("waits", "x")
		w.after(10 * time.Second)
		w.want("missed", "x")
		if miss := new(MissedError); !errors.As(w.results["x"].Err, &miss) || miss.Tail.SeqNum != 1 {
			t.Errorf("%v", w.results["x"].Err)
		}
	})
}

// TestWrongPlace: an answer that names another place than the chain can give ends the leader.
func TestWrongPlace(t *testing.T) {
	trouble(t, 2, func(w *troubled) {
		w.log.script(func(int, jslog.Message) verdict { w.log.seq++; return losesMessage })
		w.submit(protocol.Append{}, "a")
		w.l.replied(jslog.Reply{ID: w.l.nextID - 1, Kind: protocol.FrameStored, Seq: 99})
		synctest.Wait()
		w.want("indefinite", "a")
		if err := w.l.Err(); !errors.Is(err, jslog.ErrDamaged) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestStateOfFrames: frames that are sent again say what stands before them.
func TestStateOfFrames(t *testing.T) {
	trouble(t, 4, func(w *troubled) {
		w.log.script(nth(losesMessage, 2))
		w.submit(protocol.Append{}, "a")
		answer := w.fence("t")
		w.submit(protocol.Append{Token: "t"}, "b")
		if tail, err := answer(); err != nil || tail.SeqNum != 1 {
			t.Errorf("%v, %v", tail, err)
		}
		w.after(10 * time.Second)
		w.want("1", "b")
		var states []string
		for _, f := range w.log.all() {
			states = append(states, stateText(f.State))
		}
		want := "0:0 0:0 0:0 1:0 1:1t 1:1t"
		if got := strings.Join(states, " "); got != want {
			t.Errorf("states %s, want %s", got, want)
		}
	})
}

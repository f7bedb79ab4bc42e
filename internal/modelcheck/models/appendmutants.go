package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

func appendMutations() (all []modelcheck.Mutation) {
	add := func(w apWorld, name, property string, forge apForge, ignore ...string) {
		w.forge = forge
		o := modelcheck.Options{Ignore: ignore, MaxStates: 20_000_000}
		all = append(all, modelcheck.MutationOf("append/"+name, w.model(), o, property, 20))
	}
	type (
		batch = protocol.Append
		seen  = protocol.AppendSeen
		frame = protocol.PendingFrame
		place = protocol.PlaceSeen
	)
	// AdmitAppend.
	admit := func(f func(*batch, *seen)) apForge { return apForge{admit: f} }
	add(apFencings, "the token that is presented is not read", apTokens, admit(func(a *batch, s *seen) { a.Token = s.Installed }))
	add(apFencings, "the token that is installed is not read", apTokens, admit(func(_ *batch, s *seen) { s.Installed = "" }))
	add(apSessions, "a batch's session is not read", apSessionOf, admit(func(a *batch, _ *seen) { a.InSession = false }))
	add(apSessions, "a session's fence is not read", apSessionOf, admit(func(a *batch, s *seen) { a.SessionFence = s.Fence }))
	add(apSessions, "the fence that stands is not read", apSessionOf, admit(func(a *batch, s *seen) { s.Fence = a.SessionFence }))
	add(apSessions, "a session is taken for one of an earlier fence", apFenceTrue, admit(func(a *batch, s *seen) {
		if a.InSession {
			s.Fence++
		}
	}))
	add(apFrames, "a match is not read", apMatches, admit(func(a *batch, _ *seen) { a.HasMatch = false }))
	add(apFrames, "a match's number is not read", apMatches, admit(func(a *batch, s *seen) { a.Match = s.Cursor }))
	add(apFrames, "the cursor is not read", apMatches, admit(func(a *batch, s *seen) { s.Cursor = a.Match }))
	add(apFrames, "a leader is taken for none", apLeadable, admit(func(_ *batch, s *seen) { s.Leads = false }),
		apSawNames[apSawResent], apSawNames[apSawFoundStored], apSawNames[apSawBeyond], apSawNames[apSawEpochOnly], apSawNames[apSawLedBetween], apSawNames[apSawOutdated])
	// FenceInstalls.
	add(apSessions, "a fence's own token is not read", apEquals, apForge{installs: func(token, _ *string) { *token = "other" }})
	add(apSessions, "the token before a fence is not read", apEquals, apForge{installs: func(_, installed *string) { *installed = "other" }})
	// ProofCovers.
	older := func(f func(*protocol.Proof, *uint64)) apForge { return apForge{proofsByOlder: true, proof: f} }
	add(apFencings, "when a proof was sent is not read", apFenceTrue, older(func(p *protocol.Proof, _ *uint64) { p.Sent = 9 }))
	add(apFencings, "when a proof was asked for is not read", apFenceTrue, older(func(_ *protocol.Proof, requested *uint64) { *requested = 0 }))
	// SettleFrame.
	settle := func(f func(*frame, *place)) apForge { return apForge{settle: f} }
	add(apFrames, "a frame without an answer is taken for stored", apAcks, settle(func(f *frame, _ *place) { f.Reply = protocol.FrameStored }), apWhole)
	add(apFrames, "a frame without an answer is taken for refused", apNever, settle(func(f *frame, _ *place) { f.Reply = protocol.FrameRefused }), apWhole)
	add(apFrames, "a frame that was refused is taken for one without an answer", apWhole, settle(func(f *frame, at *place) {
		if f.Reply == protocol.FrameRefused {
			f.Reply, at.Found, at.Epoch, at.Base, at.Opened = protocol.FrameUnknown, f.Place, f.Epoch, f.Base, f.Place+1
		}
	}))
	add(apFrames, "a frame's place is read one too low", apNever, settle(func(f *frame, _ *place) { f.Place-- }), apWhole)
	add(apFrames, "a frame's place is not read", apAcks, settle(func(f *frame, at *place) {
		if at.Found > 0 && at.Epoch == f.Epoch {
			f.Place = at.Found
		} else if at.Found > 0 && at.Base == f.Base {
			f.Place, f.Epoch = at.Found, at.Epoch
		}
	}), apWhole)
	add(apFrames, "a frame's epoch is read wrong", apNever, settle(func(f *frame, _ *place) { f.Epoch++ }), apWhole)
	add(apRivals, "the epoch of what is at a frame's place is not read", apAcks, settle(func(f *frame, at *place) { at.Epoch = f.Epoch }), apWhole)
	add(apFrames, "a frame's base is read wrong", apNever, settle(func(f *frame, _ *place) { f.Base++ }), apWhole)
	add(apFrames, "where the new epoch begins is taken for the log's beginning", apNever, settle(func(_ *frame, at *place) { at.Opened = 0 }), apWhole)
	add(apFrames, "an outdated read is believed", apNever, settle(func(f *frame, at *place) {
		if at.Found == 0 {
			at.Found, at.Base = f.Place+1, f.Base
		}
	}), apWhole)
	add(apFrames, "what is found is taken for what lies behind", apNever, settle(func(f *frame, at *place) { at.Found++ }), apWhole)
	add(apPurged, "what is found behind a frame's place proves that it is empty", apNever, settle(func(f *frame, at *place) { at.Base = f.Base }))
	add(apPurged, "a fence frame is taken for one of records", apFenceNo, settle(func(f *frame, _ *place) { f.Fences = false }))
	add(apPurged, "the fence behind a fence frame's place is not read", apFenceNo, settle(func(_ *frame, at *place) { at.Fence = 0 }))
	add(apPurged, "a fence frame's number is read too high", apFenceNo, settle(func(f *frame, _ *place) { f.Fence++ }))

	// Steps of the log's checks.
	add(apFrames, "the chain is not checked", apFollows, apForge{noChain: true})
	add(apFrames, "the epoch is not checked", apEpochs, apForge{noEpoch: true})
	add(apFrames, "the epoch is not checked, and frames are counted", apFollows, apForge{noEpoch: true}, apEpochs)
	add(apFrames, "an opening frame does not check the newest one", apFollows, apForge{noNewest: true})
	add(apFrames, "an opening frame does not check the last sequence", apEpochs, apForge{noOpeningLast: true})
	add(apFencings, "a renewal is written over the control entry", apEpochs, apForge{renewsControl: true})
	// Steps of the leader.
	add(apFencings, "a fence is answered before it is acknowledged", apBoundary, apForge{fenceAtOnce: true})
	add(apFencings, "a refusal is answered without a proof", apFenceTrue, apForge{refusalAtOnce: true})
	add(apSessions, "what stands is answered without a proof", apStandsOK, apForge{standsAtOnce: true})
	add(apBetween, "frames are sent again with new numbers", apMatches, apForge{renumbers: true})
	add(apBetween, "frames are sent again though another node led", apFollows, apForge{resendsAlways: true})
	add(apFrames, "frames are settled without leading anew", apNever, apForge{settlesUnled: true}, apWhole, apFollows, apOnce)
	add(apFrames, "frames are settled without leading anew, and are counted", apOnce, apForge{settlesUnled: true}, apWhole, apNever, apFollows,
		apSawNames[apSawOutdated], apSawNames[apSawBeyond])
	add(apPurged, "what may be stored is said not to be", apNever, apForge{unknownIsNothing: true})
	add(apOrder, "a node that leads anew after another one keeps its sessions", apInOrder, apForge{leadsOn: true})
	return all
}

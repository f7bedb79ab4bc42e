// Package novametrics makes Prometheus metrics of a server's events. Series have the namespace of a stream at most as a label:
// a stream's own name would make as many of them as there are streams.
//
//	m := novametrics.New()
//	s, err := server.Open(ctx, config, server.Options{Events: m.Events()})
//	…
//	m.Watch(s)
//	prometheus.MustRegister(m)
package novametrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/typedfold/fold/server"
)

// Metrics are the metrics of one server. It is a prometheus.Collector, to be registered once, and safe for concurrent use.
type Metrics struct {
	requests   *prometheus.CounterVec // method, code
	latency    *prometheus.HistogramVec
	indefinite *prometheus.CounterVec // method

	records, bytes, batches, frames   *prometheus.CounterVec // namespace
	misses, refusals, fences, givenUp *prometheus.CounterVec
	takeovers, lost, recoveries       *prometheus.CounterVec
	readRecords, readBytes            *prometheus.CounterVec

	frameBatches, frameBytes, commit, recovery prometheus.Histogram

	watched atomic.Pointer[server.Server]
	gauges  []gauge
	all     []prometheus.Collector
}

// gauge is a figure of a server's Stats.
type gauge struct {
	desc *prometheus.Desc
	of   func(server.Stats) float64
}

// seconds are the bounds of latencies: from an acknowledgment in memory to a call's deadline.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New are the metrics of a server that is yet to be opened.
func New() *Metrics {
	m := &Metrics{}
	m.requests = m.counter("requests_total", "Calls that have ended, by their code; a session and a read are one call each.", "method", "code")
	m.latency = m.histogramOf("request_duration_seconds", "How long calls took; those of sessions and reads that follow last as long as these.", "method")
	m.indefinite = m.counter("requests_indefinite_total", "Calls that have ended with an unknown outcome.", "method")
	m.records = m.counter("append_records_total", "Records that the log has acknowledged.", "namespace")
	m.bytes = m.counter("append_bytes_total", "Bytes of those records, as limits count them.", "namespace")
	m.batches = m.counter("append_batches_total", "Batches that the log has acknowledged.", "namespace")
	m.frames = m.counter("frames_total", "Messages of the log with batches.", "namespace")
	m.misses = m.counter("misses_total", "Batches that were refused for their number.", "namespace")
	m.refusals = m.counter("fenced_out_total", "Batches that were refused for their token.", "namespace")
	m.fences = m.counter("fences_total", "Fencing tokens that were installed or cleared.", "namespace")
	m.givenUp = m.counter("append_indefinite_total", "Batches that were given up, and may be in the log.", "namespace")
	m.takeovers = m.counter("takeovers_total", "Streams that this node has taken over.", "namespace")
	m.lost = m.counter("leads_ended_total", "Streams that this node leads no more.", "namespace")
	m.recoveries = m.counter("recoveries_total", "Times that a leader had to find out what became of its messages.", "namespace")
	m.readRecords = m.counter("read_records_total", "Records that were sent to readers.", "namespace")
	m.readBytes = m.counter("read_bytes_total", "Bytes of those records, as limits count them.", "namespace")
	m.frameBatches = m.histogram("frame_batches", "Batches of a message of the log.", prometheus.ExponentialBuckets(1, 2, 11))
	m.frameBytes = m.histogram("frame_bytes", "Bytes of the records of a message of the log.", prometheus.ExponentialBuckets(64, 4, 8))
	m.commit = m.histogram("commit_duration_seconds", "From a message with batches to the log's acknowledgment.", seconds)
	m.recovery = m.histogram("recovery_duration_seconds", "How long leaders that went on took to do so.", seconds)
	m.gauge("sessions", "Append sessions that are open.", func(s server.Stats) float64 { return float64(s.Sessions) })
	m.gauge("reads", "Reads that are open.", func(s server.Stats) float64 { return float64(s.Reads) })
	m.gauge("in_flight_bytes", "Bytes of batches that have no answer yet.", func(s server.Stats) float64 { return float64(s.Bytes) })
	m.gauge("streams_led", "Streams that this node leads.", func(s server.Stats) float64 { return float64(s.Leads) })
	return m
}

const namespace = "nova"

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.all = append(m.all, c)
	return c
}

func (m *Metrics) histogramOf(name, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: seconds}, labels)
	m.all = append(m.all, h)
	return h
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	m.all = append(m.all, h)
	return h
}

func (m *Metrics) gauge(name, help string, of func(server.Stats) float64) {
	m.gauges = append(m.gauges, gauge{prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, nil), of})
}

// Watch has the gauges show what a server holds, from then on.
func (m *Metrics) Watch(s *server.Server) { m.watched.Store(s) }

// Describe is part of prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(out)
	}
	for _, g := range m.gauges {
		out <- g.desc
	}
}

// Collect is part of prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(out)
	}
	s := m.watched.Load()
	if s == nil {
		return
	}
	now := s.Stats()
	for _, g := range m.gauges {
		metric, err := prometheus.NewConstMetric(g.desc, prometheus.GaugeValue, g.of(now))
		if err != nil {
			metric = prometheus.NewInvalidMetric(g.desc, err)
		}
		out <- metric
	}
}

// Events are what the server is to tell to.
func (m *Metrics) Events() server.Events {
	of := func(c *prometheus.CounterVec) func(string) { return func(ns string) { c.WithLabelValues(ns).Inc() } }
	return server.Events{
		Call:       m.call,
		Committed:  m.committed,
		Missed:     of(m.misses),
		FencedOut:  of(m.refusals),
		Fenced:     of(m.fences),
		Led:        of(m.takeovers),
		LeadEnded:  func(ns string, _ error) { m.lost.WithLabelValues(ns).Inc() },
		Indefinite: func(ns string, n int) { m.givenUp.WithLabelValues(ns).Add(float64(n)) },
		Recovering: func(ns string, _ error) { m.recoveries.WithLabelValues(ns).Inc() },
		Recovered:  func(_ string, took time.Duration) { m.recovery.Observe(took.Seconds()) },
		Read: func(r server.Read) {
			m.readRecords.WithLabelValues(r.Namespace).Add(float64(r.Records))
			m.readBytes.WithLabelValues(r.Namespace).Add(float64(r.Bytes))
		},
	}
}

func (m *Metrics) call(c server.Call) {
	m.requests.WithLabelValues(c.Method, c.Code).Inc()
	m.latency.WithLabelValues(c.Method).Observe(c.Took.Seconds())
	if c.Outcome == "unknown" {
		m.indefinite.WithLabelValues(c.Method).Inc()
	}
}

func (m *Metrics) committed(c server.Committed) {
	m.frames.WithLabelValues(c.Namespace).Inc()
	m.batches.WithLabelValues(c.Namespace).Add(float64(c.Batches))
	m.records.WithLabelValues(c.Namespace).Add(float64(c.Records))
	m.bytes.WithLabelValues(c.Namespace).Add(float64(c.Bytes))
	m.frameBatches.Observe(float64(c.Batches))
	m.frameBytes.Observe(float64(c.Bytes))
	m.commit.Observe(c.Took.Seconds())
}

// Package dst plays fault schedules over the real loop of package fold: stories of a log and of a fold that has to be
// repaired, or must not be, each with faults of the store at every apply, faults of the log at every call, orders of
// delivery, sizes of a batch, and exports meanwhile. All of it runs in virtual time, on a simulated log and on stores
// whose files are in memory. Its tests are all there is; a schedule that goes wrong prints the line that plays it again.
package dst

// Package doctor is a house of its own, and has no code in this folder. It says what
// limits the loading of a training run, by how much, and what to change:
//
//	watch, tiers ─► gather ─► evidence ─► loop ─► judge ─► report ─► text, JSON
//	     system (/proc, cgroups, probes of the storage)
//
// [evidence] is what was measured, as plain data, so that a run can be recorded and
// judged again. [loop] is what follows from its figures by arithmetic. [judge] is pure:
// rules in a fixed order, of which the first that holds is the verdict, and findings,
// each a known mistake with a name. [report] writes that for people. [watch] looks at a script, at a process that runs, or at one that asks
// for it; [tiers] loads a dataset itself. [gather] makes loops of what the hook wrote in
// Python processes (the folder hook) and of the statistics of stoker's own loaders.
// Every figure carries where it was measured, and a rule that lacks one is passed over
// and says so; nothing is guessed.
//
// To add a finding: a check in judge/findings.go, recorded evidence in testdata/evidence,
// and its line in the cases of report/report_test.go.
package doctor

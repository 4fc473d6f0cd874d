// Package facts keeps small facts that were learned from the bytes of samples, such as
// the points at which a JPEG scan can be entered, in a folder of the user's cache. It
// knows neither what a fact says nor where samples are. It is a cache: losing it costs
// time, never correctness.
//
// Any number of processes use one folder at the same time. Each writes into a file of
// its own (KIND-ID.part), which gets a table after its last record, is synced, and takes
// its final name by rename (KIND-ID.facts): it is sealed. Sealed files are mapped, and
// never change again. One process at a time, under a lock, merges sealed files, and what
// processes that were killed have left, into one new file, and then removes them. A
// process that has mapped one of those goes on using it: a mapping outlives the name.
// Facts of other processes are found some seconds after they were sealed.
//
// # The file
//
// All integers are little-endian; every part begins at a multiple of 8 bytes, and the
// gaps are zero. Checksums are CRC-32C (Castagnoli), begun with that of the kind, except
// the header's: bytes of another kind never pass.
//
//	header      0  8  magic "STOKERFA"
//	            8  4  layout version
//	           12  4  checksum of bytes 0 to 12 and 16 to 64, begun with 0
//	           16 48  kind, and zeros
//	record      0  4  checksum of bytes 4 to 40+n
//	            4  4  n: length of the fact, bytes
//	            8  8  Key.File
//	           16  8  Key.Offset
//	           24  8  Key.Length
//	           32  8  stamp: Unix nanoseconds, rising within a process; the highest of a key is valid
//	           40  n  the fact
//	...
//	slot        0  8  hash: XXH64 of bytes 8 to 32 of the record, or 1 if that is 0; 0: an empty slot
//	            8  8  offset of the record / 8 << 24 | n
//	...
//	footer      0  8  magic "STOKEREN"
//	            8  8  length of the file, bytes
//	           16  8  offset of the table: the end of the records
//	           24  8  number of slots
//	           32  8  homes: slots that are some hash's first
//	           40  8  number of facts
//	           48  4  checksum of the table
//	           52  8  zero
//	           60  4  checksum of bytes 0 to 60
//
// The table is a hash table with open addressing whose slots are sorted by hash: the
// first slot of a hash is the upper half of hash * homes, and a record has the first
// free one from there on. So it can be searched like any such table, and written and
// merged as a stream, in constant memory, whatever its size. There are two homes for
// each record.
//
// A file that was not sealed is a header and records, the last of which may be broken.
//
// A sealed file may also be by itself, under any name, to travel with data: see WriteFile.
//
// Part of the format, never change without a new layout version: everything above. The
// first 12 bytes mean the same in every version.
//
// # Trust
//
// Opening checks the header, the footer and the checksum of the table, at some 10 GB/s on
// mapped pages: 41 MB for 1.28 million facts. This reads the tables into memory, so that
// no lane waits for one later, and finds damage before anything depends on it. Records
// are not read when opening. Each is checked when it is used: its bounds, then on a copy
// of it the whole key and the checksum. So neither damage nor forgery can give a wrong
// fact by accident, or a read outside the mapping; a file that a stranger truncates gives
// a fault, which is caught, and the file is not used again. Checksums find accidents, not
// forgeries: whoever may write to the folder can forge a fact.
package facts

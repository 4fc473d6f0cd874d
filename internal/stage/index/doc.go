// Package index is what is known of a dataset before a byte of it is read: one
// immutable, memory-mapped file of named columns. It knows neither what the
// columns mean nor where the dataset is; the format that built it does.
//
// # The file
//
// All integers are little-endian; every part begins at a multiple of 8 bytes,
// and the gaps are zero.
//
//	  0  8  magic "STOKERIX"
//	  8  4  layout version
//	 12  4  zero
//	 16  8  length of the file, bytes
//	 24  8  length of meta, bytes
//	 32  8  XXH64 of all bytes from 64 to the end
//	 40 16  zero
//	 56  8  XXH64 of bytes 0 to 56
//	 64  m  meta: JSON, see Meta
//	        columns, in the order of meta
//
//	int64   column of n rows:  n*8 bytes
//	int32   column of n rows:  n*4 bytes
//	bytes   column of n rows:  n bytes
//	strings column of n rows:  (n+1)*8 bytes of offsets, then the text; row i
//	                           is text[offset[i]:offset[i+1]]
//
// Part of the format, never change without a new layout version: everything
// above, and the digest (see Builder).
//
// # Trust
//
// An index is either whole or it is not used: Open compares the length, both
// checksums and every bound, at about 6 GB/s on mapped pages; 1.28 million
// samples (60 MB) take some 10 ms and no heap. Checksums of single pages would
// have made opening lazier and every access slower; a damaged index would then
// be found in the middle of an epoch, where it cannot be rebuilt. The checksums
// find accidents, not forgeries: the bounds are checked because a forged index
// must not be able to crash the engine.
//
// Nothing ever writes to a file in place: a new index replaces the old one by
// rename, and Invalidate unlinks it, so that a mapping stays whole for as long
// as it is held.
package index

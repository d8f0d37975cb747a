//! Whole expressions, and the rows that the reference was recorded with.

mod conformance;

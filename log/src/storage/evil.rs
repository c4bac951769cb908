//! A disk that fails: to be written.

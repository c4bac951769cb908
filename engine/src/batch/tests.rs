//! Round trips, bombs and hostile bytes.

"""Pure placement: a snapshot in, a plan out."""

"""The papers' algorithms as they are printed, for experiments and tests; the product runs corrected ones."""

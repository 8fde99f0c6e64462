"""Beyond one calibrated step, measured on recordings: promises, class shares, shift, review."""

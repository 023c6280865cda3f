"""What every floor uses: errors, checks of arguments, files, units, and compiled kernels."""

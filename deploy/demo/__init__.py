"""The 64-GPU recipe on a virtual fleet, from an empty directory to `Succeeded`: what `make demo` runs.

Lines that begin with `$` are what is asked, lines with `#` say what goes on; every other line is the answer of
Astraeus itself. Ends with 1 as soon as anything is not as the recipe says.
"""

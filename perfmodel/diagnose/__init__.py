"""Why a run is slower than its configuration lets expect: the step predicted again with one fact changed at a time."""

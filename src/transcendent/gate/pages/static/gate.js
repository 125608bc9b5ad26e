// The one script of the gate's pages. They work without it; it adds keys, leases and parts that load later.
"use strict";

/* All programs in one object, so that they share their maps. Each kind of event has a file. */
#include "fault.h"
#include "fault_function.h"
#include "folio.h"
#include "page.h"
#include "process.h"
#include "read.h"
#include "read_call.h"
#include "read_function.h"

/* Of the licences that the kernel accepts for programs that call its tracing helpers. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

; The queue of programs that run asynchronously, and the thread that runs them in order. The third part of the module that
; begins with `dispatch.ll`.
;
; Programs are numbered in the order of their calls. A thread with the GIL posts programs and, once they are done, releases their
; references (`weft_queue_reap`). The owner of @runner_lock runs programs, without the GIL: the runner thread, or a thread that
; waits for a program that no thread runs yet. A block that a program will write has type PENDING_T and the program's number at
; byte 40. With the GIL held, `weft_queue_reap` turns it into a BLOCK_T, or into a FAILED_T with the failure at byte 40. Byte 48
; counts the references of queued programs to a block. $FUTEX is the number of the futex system call.
%item = type { ptr,       ;  0 i32 run(ptr slots)
               ptr,       ;  1 slots
               ptr,       ;  2 callable that raises the error of `run`; it keeps everything that the program needs alive
               i64, i64,  ;  3 numbers of arguments and of results
               ptr,       ;  5 their owners
               ptr,       ;  6 numbers of the programs that compute the arguments, or -1
               ptr, i64,  ;  7 owner of the temporary memory, or null; its size in bytes
               i64,       ;  9 bytes of the results
               ptr,       ; 10 its failure, or null
               i64 }      ; 11 1 if it calls Python

@PENDING_T = external global i8
@FAILED_T = external global i8
@FAILURE_OF = external global i8          ; callable: maps a callable that raises to a failure
@STOPPED = external global i8             ; the failure of programs that never ran
@weft_runner = external global [2 x i64]  ; the thread that runs the queue; nonzero to stop its current program
@weft_queue_posted = global i64 0, align 64        ; number of posted programs; written under the GIL
@weft_queue_reaped = global i64 0                  ; number of programs that are done and whose references are released; written under the GIL
@weft_queue_bytes = global i64 0                   ; bytes of results of the posted programs that are not reaped
@weft_queue_limit = global i64 0                   ; maximum of these bytes
@weft_queue_effects = global i64 0                 ; number of the last program that calls Python, plus 1
@weft_queue_ends = global i32 0                    ; nonzero: no program runs any more
@weft_queue_done = global i64 0, align 64          ; number of programs that ran; written by the owner of @runner_lock. Its low half is a futex
@runner_lock = internal global i32 0, align 64     ; nonzero: a thread runs programs
@turn_of = internal global i64 0                   ; the thread that owns @runner_lock
@bell = internal global i32 0, align 64            ; futex of the runner: changes when there is a program to run
@runner_sleeps = internal global i32 0
@waiting = internal global i32 0                   ; number of threads that wait for a program
@reap_asked = internal global i32 0
@has_runner = internal global i32 0                ; written under the GIL
@ring = internal global [32 x ptr] zeroinitializer ; programs that are not reaped, by the low bits of their numbers
@patience = internal constant [2 x i64] [i64 0, i64 100000000]      ; s, ns between checks of signals

declare i64 @syscall(i64, ...)
declare i64 @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @Py_AddPendingCall(ptr, ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare i32 @PyErr_CheckSignals()
declare ptr @weft_new_block(i64)

define internal ptr @item_of(i64 %number) alwaysinline {
  %i = and i64 %number, 31
  %at = getelementptr [32 x ptr], ptr @ring, i64 0, i64 %i
  %item = load ptr, ptr %at
  ret ptr %item
}

; return whether this thread is running a program of the queue, which then calls this code through Python
define i32 @weft_queue_is_mine() {
  %who = load atomic i64, ptr @turn_of monotonic, align 8
  %me = call i64 @pthread_self()
  %mine = icmp eq i64 %who, %me
  %word = zext i1 %mine to i32
  ret i32 %word
}

; Set the failure of an item that depends on a failed item. Callers hold the GIL.
define internal void @inherit(ptr %item) {
entry:
  %failed_at = getelementptr %item, ptr %item, i32 0, i32 10
  %n_at = getelementptr %item, ptr %item, i32 0, i32 3
  %n = load i64, ptr %n_at
  %before_at = getelementptr %item, ptr %item, i32 0, i32 6
  %before = load ptr, ptr %before_at
  %reaped = load i64, ptr @weft_queue_reaped
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %i1 = add i64 %i, 1
  %number_at = getelementptr i64, ptr %before, i64 %i
  %number = load i64, ptr %number_at
  %there = icmp sge i64 %number, %reaped
  br i1 %there, label %look, label %next
look:
  %dep = call ptr @item_of(i64 %number)
  %why_at = getelementptr %item, ptr %dep, i32 0, i32 10
  %why = load ptr, ptr %why_at
  %fine = icmp eq ptr %why, null
  br i1 %fine, label %next, label %fail
fail:
  call void @Py_IncRef(ptr %why)
  store ptr %why, ptr %failed_at
  ret void
next:
  br label %loop
out:
  ret void
}

; Record the failure of an item, in the item and in queued items that depend on it.
define internal void @fail(ptr %item, i64 %number) noinline {
entry:
  %lock = call i32 @PyGILState_Ensure()
  %raise_at = getelementptr %item, ptr %item, i32 0, i32 2
  %raise = load ptr, ptr %raise_at
  %why0 = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr @FAILURE_OF, ptr %raise, ptr null)
  %no_why = icmp eq ptr %why0, null
  br i1 %no_why, label %none, label %known
none:
  call void @PyErr_Clear()
  call void @Py_IncRef(ptr @STOPPED)
  br label %known
known:
  %why = phi ptr [ %why0, %entry ], [ @STOPPED, %none ]
  %failed_at = getelementptr %item, ptr %item, i32 0, i32 10
  store ptr %why, ptr %failed_at
  %posted = load i64, ptr @weft_queue_posted
  br label %loop
loop:
  %n = phi i64 [ %number, %known ], [ %n1, %next ]
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %posted
  br i1 %more, label %one, label %out
one:
  %later = call ptr @item_of(i64 %n1)
  %its_at = getelementptr %item, ptr %later, i32 0, i32 10
  %its = load ptr, ptr %its_at
  %unknown = icmp eq ptr %its, null
  br i1 %unknown, label %ask, label %next
ask:
  call void @inherit(ptr %later)
  br label %next
next:
  br label %loop
out:
  call void @PyGILState_Release(i32 %lock)
  ret void
}

; Run programs up to number `end`, in order, unless another thread runs programs.
define internal void @run_until(i64 %end) noinline {
entry:
  %swap = cmpxchg ptr @runner_lock, i32 0, i32 1 acq_rel monotonic
  %got = extractvalue { i32, i1 } %swap, 1
  br i1 %got, label %mine, label %out
mine:
  %me = call i64 @pthread_self()
  store atomic i64 %me, ptr @turn_of monotonic, align 8
  br label %loop
loop:
  %done = load i64, ptr @weft_queue_done
  %posted = load atomic i64, ptr @weft_queue_posted acquire, align 8
  %some = icmp ult i64 %done, %posted
  %wanted = icmp ult i64 %done, %end
  %go = and i1 %some, %wanted
  br i1 %go, label %one, label %leave
one:
  %item = call ptr @item_of(i64 %done)
  %failed_at = getelementptr %item, ptr %item, i32 0, i32 10
  %failed = load atomic ptr, ptr %failed_at acquire, align 8
  %fine = icmp eq ptr %failed, null
  br i1 %fine, label %ask, label %ran
ask:
  %over = load atomic i32, ptr @weft_queue_ends acquire, align 4
  %ends = icmp ne i32 %over, 0
  br i1 %ends, label %skip, label %run
skip:                                             ; not counted: the object is never freed
  store atomic ptr @STOPPED, ptr %failed_at release, align 8
  br label %ran
run:
  store atomic i64 0, ptr getelementptr (i64, ptr @weft_runner, i64 1) seq_cst, align 8
  %fn = load ptr, ptr %item
  %slots_at = getelementptr %item, ptr %item, i32 0, i32 1
  %slots = load ptr, ptr %slots_at
  %rc = call i32 %fn(ptr %slots)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %raised, label %ran
raised:
  call void @fail(ptr %item, i64 %done)
  br label %ran
ran:
  %done1 = add i64 %done, 1
  store atomic i64 %done1, ptr @weft_queue_done seq_cst, align 8
  call void @tell()
  br label %loop
leave:
  store atomic i64 0, ptr @turn_of monotonic, align 8
  store atomic i32 0, ptr @runner_lock seq_cst, align 4
  %left = load atomic i64, ptr @weft_queue_posted seq_cst, align 8
  %rest = icmp ult i64 %done, %left
  br i1 %rest, label %pass, label %out
pass:                                             ; another thread must continue
  call void @ring_bell()
  call void @tell()
  br label %out
out:
  ret void
}

; wake the threads that wait for programs
define internal void @tell() {
entry:
  %n = load atomic i32, ptr @waiting seq_cst, align 4
  %any = icmp ne i32 %n, 0
  br i1 %any, label %wake, label %out
wake:
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr @weft_queue_done, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}

; wake the runner
define internal void @ring_bell() {
entry:
  %b = atomicrmw add ptr @bell, i32 1 seq_cst
  %sleeps = load atomic i32, ptr @runner_sleeps seq_cst, align 4
  %any = icmp ne i32 %sleeps, 0
  br i1 %any, label %wake, label %out
wake:
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr @bell, i32 129, i32 1, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}

define internal ptr @runner(ptr %unused) {
entry:
  %me = call i64 @pthread_self()
  store atomic i64 %me, ptr @weft_runner seq_cst, align 8
  br label %again
again:
  %seen = load atomic i32, ptr @bell seq_cst, align 4
  %before = load atomic i64, ptr @weft_queue_done monotonic, align 8
  call void @run_until(i64 -1)
  %after = load atomic i64, ptr @weft_queue_done monotonic, align 8
  %over = load atomic i32, ptr @weft_queue_ends acquire, align 4
  %ends = icmp ne i32 %over, 0
  br i1 %ends, label %end, label %memory
memory:                                           ; Python's main thread releases the references of finished programs, unless another thread does so before
  %ran = icmp ne i64 %before, %after
  br i1 %ran, label %ask, label %sleep
ask:
  %asked = atomicrmw xchg ptr @reap_asked, i32 1 seq_cst
  %already = icmp ne i32 %asked, 0
  br i1 %already, label %sleep, label %call
call:
  %r0 = call i32 @Py_AddPendingCall(ptr @reap_call, ptr null)
  br label %sleep
sleep:
  store atomic i32 1, ptr @runner_sleeps seq_cst, align 4
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr @bell, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  store atomic i32 0, ptr @runner_sleeps seq_cst, align 4
  br label %again
end:
  ret ptr null
}

define internal i32 @reap_call(ptr %unused) {
  call void @weft_queue_reap()
  ret i32 0
}

; all signals but faults are blocked in the runner, so that Python's own threads receive them
define internal void @start_runner() noinline {
entry:
  %all = alloca [16 x i64], align 16
  %old = alloca [16 x i64], align 16
  %thread = alloca i64
  %f = call i32 @sigfillset(ptr %all)
  %d0 = call i32 @sigdelset(ptr %all, i32 4)  ; SIGILL
  %d1 = call i32 @sigdelset(ptr %all, i32 7)  ; SIGBUS on Linux
  %d2 = call i32 @sigdelset(ptr %all, i32 8)  ; SIGFPE
  %d3 = call i32 @sigdelset(ptr %all, i32 11) ; SIGSEGV
  %m0 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  %err = call i32 @pthread_create(ptr %thread, ptr null, ptr @runner, ptr null)
  %m1 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  %ok = icmp eq i32 %err, 0
  br i1 %ok, label %made, label %out
made:
  store i32 1, ptr @has_runner
  %id = load i64, ptr %thread
  %d = call i32 @pthread_detach(i64 %id)
  br label %out
out:                                              ; without a runner, waiting threads run the programs
  ret void
}

; Wait until program `number` has run; run it if no thread runs programs. Return 0 if it has run, 1 to check signals and call again, 2 for a deadlock: it waits for itself.
define i32 @weft_queue_wait(i64 %number) {
entry:
  %end = add i64 %number, 1
  br label %look
look:
  %done = load atomic i64, ptr @weft_queue_done seq_cst, align 8
  %over = icmp uge i64 %done, %end
  br i1 %over, label %ready, label %whose
whose:
  %mine = call i32 @weft_queue_is_mine()
  %self = icmp ne i32 %mine, 0
  br i1 %self, label %never, label %try
try:
  %lock = load atomic i32, ptr @runner_lock seq_cst, align 4
  %free = icmp eq i32 %lock, 0
  br i1 %free, label %help, label %sleep
help:
  call void @run_until(i64 %end)
  %now = load atomic i64, ptr @weft_queue_done seq_cst, align 8
  %done_now = icmp uge i64 %now, %end
  br i1 %done_now, label %ready, label %signals
sleep:
  %seen = trunc i64 %done to i32
  %w0 = atomicrmw add ptr @waiting, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr @weft_queue_done, i32 128, i32 %seen, ptr @patience, ptr null, i32 0)
  %w1 = atomicrmw sub ptr @waiting, i32 1 seq_cst
  %woken = icmp eq i64 %r, 0
  br i1 %woken, label %look, label %signals
ready:
  ret i32 0
signals:
  ret i32 1
never:
  ret i32 2
}

; Return whether the queue has capacity for a program with results of `bytes` bytes.
define internal i1 @has_room(i64 %bytes) {
  %posted = load i64, ptr @weft_queue_posted
  %reaped = load i64, ptr @weft_queue_reaped
  %n = sub i64 %posted, %reaped
  %few = icmp ult i64 %n, 32
  %held = load i64, ptr @weft_queue_bytes
  %all = add i64 %held, %bytes
  %limit = load i64, ptr @weft_queue_limit
  %small = icmp ule i64 %all, %limit
  %alone = icmp eq i64 %n, 0
  %fits = or i1 %small, %alone
  %ok = and i1 %few, %fits
  ret i1 %ok
}

; Wait until the queue has capacity. Callers hold the GIL, which is released while waiting. Return 0 if it had capacity, 1 if it has
; now, but Python code may have run, -1 if a signal handler has set an exception.
define i32 @weft_queue_room(i64 %bytes) {
entry:
  %reaped = load i64, ptr @weft_queue_reaped
  br label %look
look:
  call void @weft_queue_reap()
  %room = call i1 @has_room(i64 %bytes)
  br i1 %room, label %yes, label %whose
whose:
  %mine = call i32 @weft_queue_is_mine()
  %self = icmp ne i32 %mine, 0
  br i1 %self, label %yes, label %wait           ; a nested call is not queued
wait:
  %first = load i64, ptr @weft_queue_reaped
  %thread = call ptr @PyEval_SaveThread()
  %r = call i32 @weft_queue_wait(i64 %first)
  call void @PyEval_RestoreThread(ptr %thread)
  %raised = call i32 @PyErr_CheckSignals()
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %look, label %no
yes:
  %now = load i64, ptr @weft_queue_reaped
  %meanwhile = icmp ne i64 %now, %reaped
  %word = zext i1 %meanwhile to i32
  ret i32 %word
no:
  ret i32 -1
}

; Queue a program. Return 0, or 1 if the queue is full or memory runs out. `numbers` are words that slots may point to. The last
; slot receives the address of `arena_bytes` of temporary memory, which programs share, since they run one at a time. Callers hold the GIL.
define i32 @weft_queue_post(ptr %fn, i64 %n_slots, ptr %slots, i64 %n_args, ptr %args, i64 %n_results, ptr %results, i64 %arena_bytes,
                            ptr %raise, i64 %bytes, ptr %numbers, i64 %n_numbers, i64 %calls_python) {
entry:
  %ends = load i32, ptr @weft_queue_ends
  %open = icmp eq i32 %ends, 0
  %room = call i1 @has_room(i64 %bytes)
  %ok = and i1 %open, %room
  br i1 %ok, label %temporary, label %refuse
refuse:
  ret i32 1
temporary:
  %number = load i64, ptr @weft_queue_posted
  %none_wanted = icmp eq i64 %arena_bytes, 0
  br i1 %none_wanted, label %memory, label %others
others:
  %reaped = load i64, ptr @weft_queue_reaped
  %empty = icmp eq i64 %reaped, %number
  br i1 %empty, label %arena_new, label %last
last:
  %last_number = sub i64 %number, 1
  %last_item = call ptr @item_of(i64 %last_number)
  %last_arena_at = getelementptr %item, ptr %last_item, i32 0, i32 7
  %last_arena = load ptr, ptr %last_arena_at
  %last_bytes_at = getelementptr %item, ptr %last_item, i32 0, i32 8
  %last_bytes = load i64, ptr %last_bytes_at
  %enough = icmp uge i64 %last_bytes, %arena_bytes
  br i1 %enough, label %arena_share, label %arena_new
arena_share:
  call void @Py_IncRef(ptr %last_arena)
  br label %memory
arena_new:
  %new_arena = call ptr @weft_new_block(i64 %arena_bytes)
  %no_arena = icmp eq ptr %new_arena, @_Py_NoneStruct
  br i1 %no_arena, label %no_memory, label %memory
memory:
  %arena = phi ptr [ null, %temporary ], [ %last_arena, %arena_share ], [ %new_arena, %arena_new ]
  %capacity = phi i64 [ 0, %temporary ], [ %last_bytes, %arena_share ], [ %arena_bytes, %arena_new ]
  %objects_n = add i64 %n_args, %n_results
  %w0 = add i64 %n_slots, %objects_n
  %w1 = add i64 %w0, %n_args
  %words = add i64 %w1, %n_numbers
  %more = shl i64 %words, 3
  %whole = add i64 %more, 96
  %item = call ptr @malloc(i64 %whole)
  %no_item = icmp eq ptr %item, null
  br i1 %no_item, label %no_memory, label %fill
no_memory:
  %unused = phi ptr [ %new_arena, %arena_new ], [ %arena, %memory ]
  call void @Py_DecRef(ptr %unused)               ; may be null
  ret i32 1
fill:
  %slots_to = getelementptr i8, ptr %item, i64 96
  %objects = getelementptr ptr, ptr %slots_to, i64 %n_slots
  %before = getelementptr ptr, ptr %objects, i64 %objects_n
  %numbers_to = getelementptr ptr, ptr %before, i64 %n_args
  store ptr %fn, ptr %item
  %f1 = getelementptr %item, ptr %item, i32 0, i32 1
  store ptr %slots_to, ptr %f1
  %f2 = getelementptr %item, ptr %item, i32 0, i32 2
  store ptr %raise, ptr %f2
  call void @Py_IncRef(ptr %raise)
  %f3 = getelementptr %item, ptr %item, i32 0, i32 3
  store i64 %n_args, ptr %f3
  %f4 = getelementptr %item, ptr %item, i32 0, i32 4
  store i64 %n_results, ptr %f4
  %f5 = getelementptr %item, ptr %item, i32 0, i32 5
  store ptr %objects, ptr %f5
  %f6 = getelementptr %item, ptr %item, i32 0, i32 6
  store ptr %before, ptr %f6
  %f7 = getelementptr %item, ptr %item, i32 0, i32 7
  store ptr %arena, ptr %f7
  %f8 = getelementptr %item, ptr %item, i32 0, i32 8
  store i64 %capacity, ptr %f8
  %f9 = getelementptr %item, ptr %item, i32 0, i32 9
  store i64 %bytes, ptr %f9
  %f10 = getelementptr %item, ptr %item, i32 0, i32 10
  store ptr null, ptr %f10
  %f11 = getelementptr %item, ptr %item, i32 0, i32 11
  store i64 %calls_python, ptr %f11
  call void @copy_ptrs(ptr %numbers_to, ptr %numbers, i64 %n_numbers)
  %numbers_int = ptrtoint ptr %numbers to i64
  %numbers_bytes = shl i64 %n_numbers, 3
  br label %slot_loop
slot_loop:
  %s = phi i64 [ 0, %fill ], [ %s1, %slot_one ]
  %s_more = icmp ult i64 %s, %n_slots
  br i1 %s_more, label %slot_one, label %slots_done
slot_one:
  %s_from = getelementptr ptr, ptr %slots, i64 %s
  %s_value = load ptr, ptr %s_from
  %s_int = ptrtoint ptr %s_value to i64
  %s_offset = sub i64 %s_int, %numbers_int
  %s_number = icmp ult i64 %s_offset, %numbers_bytes
  %s_moved = getelementptr i8, ptr %numbers_to, i64 %s_offset
  %s_kept = select i1 %s_number, ptr %s_moved, ptr %s_value
  %s_to = getelementptr ptr, ptr %slots_to, i64 %s
  store ptr %s_kept, ptr %s_to
  %s1 = add i64 %s, 1
  br label %slot_loop
slots_done:
  %arena_slot = sub i64 %n_slots, 1
  %arena_to = getelementptr ptr, ptr %slots_to, i64 %arena_slot
  %arena_data = getelementptr i8, ptr %arena, i64 64
  store ptr %arena_data, ptr %arena_to
  br label %arg_loop
arg_loop:
  %a = phi i64 [ 0, %slots_done ], [ %a1, %arg_next ]
  %a_more = icmp ult i64 %a, %n_args
  br i1 %a_more, label %arg_one, label %args_done
arg_one:
  %a1 = add i64 %a, 1
  %a_from = getelementptr ptr, ptr %args, i64 %a
  %x = load ptr, ptr %a_from
  %a_to = getelementptr ptr, ptr %objects, i64 %a
  store ptr %x, ptr %a_to
  call void @hold(ptr %x, i64 1)
  %type_at = getelementptr i8, ptr %x, i64 8
  %type = load ptr, ptr %type_at
  %is_pending = icmp eq ptr %type, @PENDING_T
  br i1 %is_pending, label %arg_pending, label %arg_next
arg_pending:
  %its_number_at = getelementptr i8, ptr %x, i64 40
  %its_number = load i64, ptr %its_number_at
  br label %arg_next
arg_next:
  %dep = phi i64 [ -1, %arg_one ], [ %its_number, %arg_pending ]
  %dep_to = getelementptr i64, ptr %before, i64 %a
  store i64 %dep, ptr %dep_to
  br label %arg_loop
args_done:
  call void @inherit(ptr %item)
  %result_objects = getelementptr ptr, ptr %objects, i64 %n_args
  br label %result_loop
result_loop:
  %r = phi i64 [ 0, %args_done ], [ %r1, %result_one ]
  %r_more = icmp ult i64 %r, %n_results
  br i1 %r_more, label %result_one, label %post
result_one:
  %r1 = add i64 %r, 1
  %r_from = getelementptr ptr, ptr %results, i64 %r
  %y = load ptr, ptr %r_from
  %r_to = getelementptr ptr, ptr %result_objects, i64 %r
  store ptr %y, ptr %r_to
  call void @hold(ptr %y, i64 1)
  %y_type_at = getelementptr i8, ptr %y, i64 8
  store ptr @PENDING_T, ptr %y_type_at
  %y_number_at = getelementptr i8, ptr %y, i64 40
  store i64 %number, ptr %y_number_at
  br label %result_loop
post:
  %ring_i = and i64 %number, 31
  %ring_at = getelementptr [32 x ptr], ptr @ring, i64 0, i64 %ring_i
  store ptr %item, ptr %ring_at
  %held = load i64, ptr @weft_queue_bytes
  %held1 = add i64 %held, %bytes
  store i64 %held1, ptr @weft_queue_bytes
  %number1 = add i64 %number, 1
  %python = icmp ne i64 %calls_python, 0
  %effects = load i64, ptr @weft_queue_effects
  %effects1 = select i1 %python, i64 %number1, i64 %effects
  store i64 %effects1, ptr @weft_queue_effects
  store atomic i64 %number1, ptr @weft_queue_posted seq_cst, align 8
  %runs = load i32, ptr @has_runner
  %there = icmp ne i32 %runs, 0
  br i1 %there, label %wake, label %start
start:
  call void @start_runner()
  br label %wake
wake:
  call void @ring_bell()
  ret i32 0
}

; Add (1) or remove (-1) a reference of a queued program to an owner; blocks count these references.
define internal void @hold(ptr %x, i64 %change) {
entry:
  %type_at = getelementptr i8, ptr %x, i64 8
  %type = load ptr, ptr %type_at
  %is_block = icmp eq ptr %type, @BLOCK_T
  %is_pending = icmp eq ptr %type, @PENDING_T
  %is_failed = icmp eq ptr %type, @FAILED_T
  %either = or i1 %is_block, %is_pending
  %any = or i1 %either, %is_failed
  br i1 %any, label %count, label %refer
count:
  %count_at = getelementptr i8, ptr %x, i64 48
  %n = load i64, ptr %count_at
  %n1 = add i64 %n, %change
  store i64 %n1, ptr %count_at
  br label %refer
refer:
  %up = icmp sgt i64 %change, 0
  br i1 %up, label %inc, label %dec
inc:
  call void @Py_IncRef(ptr %x)
  ret void
dec:
  call void @Py_DecRef(ptr %x)
  ret void
}

; Release the references of programs that are done. Callers hold the GIL; freed objects may run Python code that calls this function again.
define void @weft_queue_reap() {
entry:
  br label %look
look:
  %reaped = load i64, ptr @weft_queue_reaped
  %done = load atomic i64, ptr @weft_queue_done acquire, align 8
  %some = icmp ult i64 %reaped, %done
  br i1 %some, label %one, label %out
one:
  call void @reap(i64 %reaped)
  br label %look
out:
  store atomic i32 0, ptr @reap_asked seq_cst, align 4
  ret void
}

define internal void @reap(i64 %number) noinline {
entry:
  %item = call ptr @item_of(i64 %number)
  %f3 = getelementptr %item, ptr %item, i32 0, i32 3
  %n_args = load i64, ptr %f3
  %f4 = getelementptr %item, ptr %item, i32 0, i32 4
  %n_results = load i64, ptr %f4
  %f5 = getelementptr %item, ptr %item, i32 0, i32 5
  %objects = load ptr, ptr %f5
  %f9 = getelementptr %item, ptr %item, i32 0, i32 9
  %bytes = load i64, ptr %f9
  %f10 = getelementptr %item, ptr %item, i32 0, i32 10
  %why = load ptr, ptr %f10
  %fine = icmp eq ptr %why, null
  %kind = select i1 %fine, ptr @BLOCK_T, ptr @FAILED_T
  %n = add i64 %n_args, %n_results
  br label %type_loop
type_loop:
  %i = phi i64 [ %n_args, %entry ], [ %i1, %type_next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %type_one, label %typed
type_one:
  %i1 = add i64 %i, 1
  %at = getelementptr ptr, ptr %objects, i64 %i
  %x = load ptr, ptr %at
  %number_at = getelementptr i8, ptr %x, i64 40
  %its = load i64, ptr %number_at
  %mine = icmp eq i64 %its, %number
  br i1 %mine, label %retype, label %type_next       ; else a later program writes it, too
retype:
  %type_at = getelementptr i8, ptr %x, i64 8
  store ptr %kind, ptr %type_at
  br i1 %fine, label %type_next, label %tell
tell:
  call void @Py_IncRef(ptr %why)
  store ptr %why, ptr %number_at
  br label %type_next
type_next:
  br label %type_loop
typed:
  %held = load i64, ptr @weft_queue_bytes
  %held1 = sub i64 %held, %bytes
  store i64 %held1, ptr @weft_queue_bytes
  %number1 = add i64 %number, 1
  store i64 %number1, ptr @weft_queue_reaped
  br label %drop_loop
drop_loop:
  %j = phi i64 [ 0, %typed ], [ %j1, %drop_one ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %drop_one, label %rest
drop_one:
  %j_at = getelementptr ptr, ptr %objects, i64 %j
  %y = load ptr, ptr %j_at
  call void @hold(ptr %y, i64 -1)
  %j1 = add i64 %j, 1
  br label %drop_loop
rest:
  %f7 = getelementptr %item, ptr %item, i32 0, i32 7
  %arena = load ptr, ptr %f7
  call void @Py_DecRef(ptr %arena)                ; may be null
  %stopped = icmp eq ptr %why, @STOPPED
  %counted = select i1 %stopped, ptr null, ptr %why
  call void @Py_DecRef(ptr %counted)
  %f2 = getelementptr %item, ptr %item, i32 0, i32 2
  %raise = load ptr, ptr %f2
  call void @Py_DecRef(ptr %raise)
  call void @free(ptr %item)
  ret void
}

; A forked child has no runner: programs that its parent had not run never run in the child. The child of a program's own callback continues.
define void @weft_queue_forked() {
entry:
  %mine = call i32 @weft_queue_is_mine()
  %own = icmp ne i32 %mine, 0
  br i1 %own, label %out, label %clear
clear:
  store i64 0, ptr @weft_runner
  store i32 0, ptr @has_runner
  store i32 0, ptr @runner_sleeps
  store i32 0, ptr @waiting
  store i32 0, ptr @reap_asked
  store i64 0, ptr @turn_of
  store i32 0, ptr @runner_lock
  %posted = load i64, ptr @weft_queue_posted
  br label %loop
loop:
  %done = load i64, ptr @weft_queue_done
  %more = icmp ult i64 %done, %posted
  br i1 %more, label %one, label %out
one:
  %item = call ptr @item_of(i64 %done)
  %failed_at = getelementptr %item, ptr %item, i32 0, i32 10
  %failed = load ptr, ptr %failed_at
  %known = icmp ne ptr %failed, null
  %why = select i1 %known, ptr %failed, ptr @STOPPED
  store ptr %why, ptr %failed_at
  %done1 = add i64 %done, 1
  store i64 %done1, ptr @weft_queue_done
  br label %loop
out:
  ret void
}

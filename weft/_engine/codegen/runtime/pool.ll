; The thread pool and the scratch memory of native code.
;
;   void weft_parallel_for(ptr fn, ptr ctx, i64 ntasks)      fn is void(ptr ctx, i64 task, i64 wid)
;   ptr  weft_scratch_take(i64 nbytes)                       64-byte aligned, not cleared
;   void weft_scratch_give(ptr)
;
; The pool runs one job at a time. Its tasks are claimed through a ticket, epoch << 32 | taken from the back << 16 | taken from
; the front, by compare-and-swap: a thread that read the fields of an older job cannot claim a task of a newer one. The caller
; takes tasks from the front and the workers from the back: in successive jobs, each finds its own data in its caches, which
; are tens of megabytes large on machines where cores have a last-level cache of their own. With 65536 tasks or more, which do
; not fit in a half, all tasks are taken from the front, and the 32 bits are one number. The caller takes part and never waits
; for a worker that has claimed no task. A caller that finds the pool busy (a nested call, another thread) runs its own tasks
; inline. `wid` is below the number of threads, and no two concurrent tasks of one call have the same `wid`.
;
; pool.py fills in the placeholders in braces for the architecture.

@weft_pool_threads = global i64 1                  ; threads of a job, including the caller; at most 1024
@weft_pool_spin = global i32 0                     ; spin hints before a worker sleeps
@weft_pool_allowed = global [16 x i64] zeroinitializer ; CPUs of the process, one bit each
@weft_pool_place = global i32 0                    ; nonzero: keep woken workers off the caller's CPU
@weft_pool_alive = global i32 0, align 64          ; workers that have not returned

@ticket = internal global i64 0, align 64
@job_fn = internal global ptr null, align 64
@job_ctx = internal global ptr null
@job_size = internal global i64 0
@done = internal global i64 0, align 64
@word = internal global i32 0, align 64            ; the futex: changes with every job
@sleepers = internal global i32 0, align 64
@stopping = internal global i32 0
@busy = internal global i32 0, align 64
@started = internal global i64 0, align 64         ; number of workers created; written under @busy
@caller_cpu = internal global i32 -1
@worker_mask = internal global [16 x i64] zeroinitializer
@handles = internal global [1024 x i64] zeroinitializer
@scratch = internal global [8 x ptr] zeroinitializer, align 64

declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare void @abort() noreturn
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
${declare_relax}

define internal void @relax() alwaysinline {
  ${relax}
  ret void
}

; Claim and run tasks until the ticket is used up.
define internal void @drain(i64 %wid) noinline {
entry:
  %odd = trunc i64 %wid to i1
  br label %look
look:
  %t = load atomic i64, ptr @ticket acquire, align 8
  %n = load atomic i64, ptr @job_size acquire, align 8
  %both = and i64 %t, 4294967295
  %front = and i64 %t, 65535
  %back = lshr i64 %both, 16
  %sum = add i64 %front, %back
  %few = icmp ult i64 %n, 65536
  %taken = select i1 %few, i64 %sum, i64 %both
  %more = icmp ult i64 %taken, %n
  br i1 %more, label %claim, label %out
claim:
  %behind = and i1 %odd, %few
  %left = sub i64 %n, %back
  %last = sub i64 %left, 1
  %first = select i1 %few, i64 %front, i64 %both
  %task = select i1 %behind, i64 %last, i64 %first
  %one = select i1 %behind, i64 65536, i64 1
  %fn = load atomic ptr, ptr @job_fn acquire, align 8
  %ctx = load atomic ptr, ptr @job_ctx acquire, align 8
  %next = add i64 %t, %one
  %swap = cmpxchg ptr @ticket, i64 %t, i64 %next acq_rel monotonic
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %look
run:
  call void %fn(ptr %ctx, i64 %task, i64 %wid)
  %d = atomicrmw add ptr @done, i64 1 release
  br label %look
out:
  ret void
}

define internal ptr @worker(ptr %self) {
entry:
  %wid = ptrtoint ptr %self to i64
  br label %again
again:                                    ; the word is read before the work, so that a job posted meanwhile prevents sleeping
  %seen = load atomic i32, ptr @word acquire, align 4
  %stop = load atomic i32, ptr @stopping acquire, align 4
  %end = icmp ne i32 %stop, 0
  br i1 %end, label %exit, label %work
work:
  call void @drain(i64 %wid)
  %limit = load i32, ptr @weft_pool_spin
  br label %spin
spin:
  %k = phi i32 [ 0, %work ], [ %k1, %wait ]
  %now = load atomic i32, ptr @word acquire, align 4
  %moved = icmp ne i32 %now, %seen
  br i1 %moved, label %again, label %wait
wait:
  call void @relax()
  %k1 = add i32 %k, 1
  %tired = icmp uge i32 %k1, %limit
  br i1 %tired, label %sleep, label %spin
sleep:                                    ; FUTEX_WAIT | FUTEX_PRIVATE; returns at once if the word has changed
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 ${futex}, ptr @word, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %again
exit:
  %a = atomicrmw sub ptr @weft_pool_alive, i32 1 seq_cst
  ret ptr null
}

; Create the workers, with all signals but faults blocked, so that Python's own threads receive them. A blocked fault would end
; the process without its handler. Called under @busy.
define internal void @start(i64 %threads) {
entry:
  %all = alloca [16 x i64], align 16
  %old = alloca [16 x i64], align 16
  %f = call i32 @sigfillset(ptr %all)
  %d0 = call i32 @sigdelset(ptr %all, i32 4)  ; SIGILL
  %d1 = call i32 @sigdelset(ptr %all, i32 7)  ; SIGBUS on Linux
  %d2 = call i32 @sigdelset(ptr %all, i32 8)  ; SIGFPE
  %d3 = call i32 @sigdelset(ptr %all, i32 11) ; SIGSEGV
  %m0 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %loop
loop:
  %w = phi i64 [ 1, %entry ], [ %w1, %made ]
  %more = icmp ult i64 %w, %threads
  br i1 %more, label %make, label %end
make:
  %a0 = atomicrmw add ptr @weft_pool_alive, i32 1 seq_cst
  %h = getelementptr [1024 x i64], ptr @handles, i64 0, i64 %w
  %self = inttoptr i64 %w to ptr
  %err = call i32 @pthread_create(ptr %h, ptr null, ptr @worker, ptr %self)
  %ok = icmp eq i32 %err, 0
  br i1 %ok, label %made, label %refused
made:
  %hv = load i64, ptr %h
  %dt = call i32 @pthread_detach(i64 %hv)
  %w1 = add i64 %w, 1
  br label %loop
refused:                                  ; the system refuses more threads: continue with the existing ones
  %a1 = atomicrmw sub ptr @weft_pool_alive, i32 1 seq_cst
  br label %end
end:
  %count = phi i64 [ %threads, %loop ], [ %w, %refused ]
  %m1 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  store i64 %count, ptr @started
  store i32 -1, ptr @caller_cpu
  ret void
}

; Wake up to %n sleeping workers. The scheduler might put a woken worker on the caller's CPU, where it would wait for a whole
; time slice; so that CPU is removed from the workers' masks first, if the caller has moved.
define internal void @wake(i64 %n) noinline {
entry:
  %place = load i32, ptr @weft_pool_place
  %placed = icmp eq i32 %place, 0
  br i1 %placed, label %go, label %where
where:
  %cpu = call i32 @sched_getcpu()
  %last = load i32, ptr @caller_cpu
  %same = icmp eq i32 %cpu, %last
  %far = icmp uge i32 %cpu, 1024
  %skip = or i1 %same, %far
  br i1 %skip, label %go, label %mask
mask:
  store i32 %cpu, ptr @caller_cpu
  call void @llvm.memcpy.p0.p0.i64(ptr @worker_mask, ptr @weft_pool_allowed, i64 128, i1 false)
  %c64 = zext i32 %cpu to i64
  %at = lshr i64 %c64, 6
  %shift = and i64 %c64, 63
  %bit = shl i64 1, %shift
  %keep = xor i64 %bit, -1
  %p = getelementptr [16 x i64], ptr @worker_mask, i64 0, i64 %at
  %bits = load i64, ptr %p
  %rest = and i64 %bits, %keep
  store i64 %rest, ptr %p
  %count = load i64, ptr @started
  br label %loop
loop:
  %w = phi i64 [ 1, %mask ], [ %w1, %set ]
  %more = icmp ult i64 %w, %count
  br i1 %more, label %set, label %go
set:
  %h = getelementptr [1024 x i64], ptr @handles, i64 0, i64 %w
  %hv = load i64, ptr %h
  %r0 = call i32 @pthread_setaffinity_np(i64 %hv, i64 128, ptr @worker_mask)
  %w1 = add i64 %w, 1
  br label %loop
go:                                       ; FUTEX_WAKE | FUTEX_PRIVATE
  %helpers = sub i64 %n, 1
  %big = icmp ugt i64 %helpers, 1024
  %few = select i1 %big, i64 1024, i64 %helpers
  %k = trunc i64 %few to i32
  %r = call i64 (i64, ...) @syscall(i64 ${futex}, ptr @word, i32 129, i32 %k, ptr null, ptr null, i32 0)
  ret void
}

define void @weft_parallel_for(ptr %fn, ptr %ctx, i64 %n) {
entry:
  %few = icmp ule i64 %n, 1
  %threads = load i64, ptr @weft_pool_threads
  %alone = icmp ule i64 %threads, 1
  %many = icmp ugt i64 %n, 4294967294
  %o1 = or i1 %few, %alone
  %o2 = or i1 %o1, %many
  br i1 %o2, label %inline, label %lock
lock:
  %seen = load atomic i32, ptr @busy monotonic, align 4
  %idle = icmp eq i32 %seen, 0
  br i1 %idle, label %try, label %inline
try:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %swap, 1
  br i1 %got, label %mine, label %inline
inline:
  %some = icmp ne i64 %n, 0
  br i1 %some, label %one, label %ret
one:
  %i = phi i64 [ 0, %inline ], [ %i1, %one ]
  call void %fn(ptr %ctx, i64 %i, i64 0)
  %i1 = add i64 %i, 1
  %m = icmp ult i64 %i1, %n
  br i1 %m, label %one, label %ret
mine:
  %count = load i64, ptr @started
  %ready = icmp ne i64 %count, 0
  br i1 %ready, label %post, label %first
first:
  %st = load atomic i32, ptr @stopping acquire, align 4
  %over = icmp ne i32 %st, 0
  br i1 %over, label %post, label %make
make:
  call void @start(i64 %threads)
  br label %post
post:                                     ; park the ticket at an invalid value before the fields change
  %old = load atomic i64, ptr @ticket monotonic, align 8
  %parked = or i64 %old, 4294967295
  store atomic i64 %parked, ptr @ticket release, align 8
  fence seq_cst
  store atomic ptr %fn, ptr @job_fn monotonic, align 8
  store atomic ptr %ctx, ptr @job_ctx monotonic, align 8
  store atomic i64 %n, ptr @job_size monotonic, align 8
  store atomic i64 0, ptr @done monotonic, align 8
  %fresh = add i64 %parked, 1              ; the next epoch, task 0
  store atomic i64 %fresh, ptr @ticket release, align 8
  %w0 = atomicrmw add ptr @word, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %rouse, label %work
rouse:
  call void @wake(i64 %n)
  br label %work
work:
  call void @drain(i64 0)
  br label %join
join:
  %k = phi i32 [ 0, %work ], [ %k1, %pause ], [ 0, %yield ]
  %d = load atomic i64, ptr @done acquire, align 8
  %fin = icmp uge i64 %d, %n
  br i1 %fin, label %unlock, label %pause
pause:
  call void @relax()
  %k1 = add i32 %k, 1
  %long = icmp ugt i32 %k1, 4000
  br i1 %long, label %yield, label %join
yield:
  %y = call i32 @sched_yield()
  br label %join
unlock:
  store atomic i32 0, ptr @busy release, align 4
  br label %ret
ret:
  ret void
}

; Ask the workers to return; later calls run inline.
define void @weft_pool_stop() {
  store atomic i32 1, ptr @stopping seq_cst, align 4
  %w = atomicrmw add ptr @word, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 ${futex}, ptr @word, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}

; In a forked child no worker exists, and a job that another thread of the parent had posted is dropped.
define void @weft_pool_forked() {
  store atomic i64 0, ptr @job_size seq_cst, align 8
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @weft_pool_alive seq_cst, align 4
  store i64 0, ptr @started
  store i32 -1, ptr @caller_cpu
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

; Eight slots keep scratch blocks between calls, so that their pages stay mapped. The first word of a block is its size;
; its data begin 64 bytes later.
define ptr @weft_scratch_take(i64 %n) {
entry:
  %need = add i64 %n, 64
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %left = icmp ult i64 %i, 8
  br i1 %left, label %slot, label %make
slot:
  %s = getelementptr [8 x ptr], ptr @scratch, i64 0, i64 %i
  %i1 = add i64 %i, 1
  %peek = load atomic ptr, ptr %s monotonic, align 8
  %empty = icmp eq ptr %peek, null
  br i1 %empty, label %next, label %take
take:
  %b = atomicrmw xchg ptr %s, ptr null acquire
  %gone = icmp eq ptr %b, null
  br i1 %gone, label %next, label %fit
fit:
  %size = load i64, ptr %b
  %fits = icmp uge i64 %size, %need
  br i1 %fits, label %found, label %drop
drop:
  call void @free(ptr %b)
  br label %next
next:
  br label %look
make:
  %large = icmp uge i64 %need, 524288
  br i1 %large, label %huge, label %pages
huge:                                     ; whole huge pages: 2 MiB aligned, MADV_HUGEPAGE
  %h0 = add i64 %need, 2097151
  %h1 = and i64 %h0, -2097152
  %h = call ptr @aligned_alloc(i64 2097152, i64 %h1)
  %r = call i32 @madvise(ptr %h, i64 %h1, i32 14)
  br label %made
pages:                                    ; small blocks: the first touch of a huge page would clear and keep 2 MiB
  %p0 = add i64 %need, 65535
  %p1 = and i64 %p0, -65536
  %p = call ptr @aligned_alloc(i64 4096, i64 %p1)
  br label %made
made:
  %new = phi ptr [ %h, %huge ], [ %p, %pages ]
  %whole = phi i64 [ %h1, %huge ], [ %p1, %pages ]
  %null = icmp eq ptr %new, null
  br i1 %null, label %fail, label %fresh
fail:
  call void @abort()
  unreachable
fresh:
  store i64 %whole, ptr %new
  br label %found
found:
  %block = phi ptr [ %b, %fit ], [ %new, %fresh ]
  %data = getelementptr i8, ptr %block, i64 64
  ret ptr %data
}

define void @weft_scratch_give(ptr %data) {
entry:
  %b = getelementptr i8, ptr %data, i64 -64
  %size = load i64, ptr %b
  %huge = icmp ugt i64 %size, 268435456
  br i1 %huge, label %drop, label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %full ]
  %left = icmp ult i64 %i, 8
  br i1 %left, label %slot, label %drop
slot:
  %s = getelementptr [8 x ptr], ptr @scratch, i64 0, i64 %i
  %i1 = add i64 %i, 1
  %swap = cmpxchg ptr %s, ptr null, ptr %b release monotonic
  %ok = extractvalue { ptr, i1 } %swap, 1
  br i1 %ok, label %ret, label %full
full:
  br label %look
drop:
  call void @free(ptr %b)
  br label %ret
ret:
  ret void
}

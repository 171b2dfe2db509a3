; Collectives by MPI: each is started without waiting, and polled until it is done.
;
;   i64 weft_mpi_start(i64 plan, ptr in, ptr out)      a request, or -1
;   i32 weft_mpi_wait(i64 request)
;   i64 weft_ring_start(i64 plan, ptr in, ptr out)     for a large all_reduce; waited for by weft_mpi_wait
;   void weft_mpi_progress(ptr words)                  makes progress until stopped, in a thread of its own
;
; A message that MPI reports as sent may still need progress in this process to arrive.
;
; Words of a plan: 0 start, 1 wait, 2 kind, 3 MPI's count argument, 4 datatype, 5 reduction, 6 communicator, 7 the MPI function,
;   8 MPI_Test, 9 address of a word that is nonzero once a process failed, 10 function called while waiting: i32 (i64 request), 0 to
;   continue, 11 bytes of the input, 12 source in a permute or -1, 13 its target or -1, 14 the receive function, 15 bytes of the output,
;   16 MPIX_Request_is_complete or 0, 17 a request of the communicator of all processes, 18 MPI_Wait.
; MPICH aborts if a function that makes progress meets a lost peer, regardless of the error handler, except in calls for the
;   communicator of all processes. With word 16, such a call, a test of word 17, makes progress; only completed requests are tested.
; Words of the progress thread: 0 nonzero to stop, 1 MPI_Test, 2 a request, 3 microseconds between two tests.
; Words of a request: 0 wait, 1 plan, 2 last return code of MPI, 3 and 4 MPI's requests, 5 their number, 6 start time, 7 whether the
;   return code is about this request, 8 the awaited request.
; Kinds: 0 all_reduce and reduce_scatter, 1 all_gather and all_to_all, 2 broadcast from the first, 3 permute.
;
; A large all_reduce travels around a ring: each member sends to the right what it received from the left, in 2 (n - 1) rounds. The
; array is divided into n blocks. In the first n - 1 rounds a received block is added to the member's own, so that each member then has
; one complete block; in the other rounds the complete blocks travel around. In round t a member sends block (position - t) mod n.
; Blocks travel in segments, with up to 4 in progress in each direction, so that adding and sending overlap. A segment is received
; into the place of a sent segment only after that was sent.
; Further words of such a plan: 19 elements of a block (0 in other plans), 20 of a segment, 21 segments of a block, 22 members,
;   23 position, 24 left, 25 right, 26 function that combines arrays, 27 bytes of an element, 28 address of this communicator's counter.
; Further words of such a request: 8 in, 9 out, 10 tag, 11 segments with a posted receive, 12 received, 13 sends started, 14 sent,
;   16 to 19 MPI's receive requests, 20 to 23 its send requests; from 24 memory for 4 segments.
;
; Placeholders: ${handle}, the type of MPI's handles; the others are the placeholders of windows.ll.

declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare i32 @sched_yield()
declare i32 @usleep(i32)
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
${declare_relax}

define internal void @relax() alwaysinline {
  ${relax}
  ret void
}

define internal i64 @word(ptr %record, i64 %i) alwaysinline {
  %p = getelementptr i64, ptr %record, i64 %i
  %v = load i64, ptr %p, align 8
  ret i64 %v
}

define internal ptr @pointer(ptr %record, i64 %i) alwaysinline {
  %p = getelementptr ptr, ptr %record, i64 %i
  %v = load ptr, ptr %p, align 8
  ret ptr %v
}

define internal ${handle} @handle(ptr %record, i64 %i) alwaysinline {
  %p = getelementptr i64, ptr %record, i64 %i
  %v = load ${handle}, ptr %p, align 8
  ret ${handle} %v
}

define internal void @set(ptr %record, i64 %i, i64 %v) alwaysinline {
  %p = getelementptr i64, ptr %record, i64 %i
  store i64 %v, ptr %p, align 8
  ret void
}

define internal i64 @nanoseconds() noinline {
  %t = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 1, ptr %t)
  %s = call i64 @word(ptr %t, i64 0)
  %n = call i64 @word(ptr %t, i64 1)
  %sn = mul i64 %s, 1000000000
  %now = add i64 %sn, %n
  ret i64 %now
}

define i64 @weft_mpi_start(i64 %number, ptr %in, ptr %out) {
entry:
  %plan = inttoptr i64 %number to ptr
  %failed_p = call ptr @pointer(ptr %plan, i64 9)
  %failed = load atomic i64, ptr %failed_p monotonic, align 8
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %refuse, label %make
refuse:
  ret i64 -1
make:
  %request = call ptr @malloc(i64 72)
  %wait = call i64 @word(ptr %plan, i64 1)
  call void @set(ptr %request, i64 0, i64 %wait)
  call void @set(ptr %request, i64 1, i64 %number)
  call void @set(ptr %request, i64 2, i64 0)
  call void @set(ptr %request, i64 5, i64 1)
  call void @set(ptr %request, i64 7, i64 1)
  call void @set(ptr %request, i64 8, i64 0)
  %began = call i64 @nanoseconds()
  call void @set(ptr %request, i64 6, i64 %began)
  %first = getelementptr i64, ptr %request, i64 3
  %second = getelementptr i64, ptr %request, i64 4
  %kind = call i64 @word(ptr %plan, i64 2)
  %count64 = call i64 @word(ptr %plan, i64 3)
  %count = trunc i64 %count64 to i32
  %type = call ${handle} @handle(ptr %plan, i64 4)
  %op = call ${handle} @handle(ptr %plan, i64 5)
  %comm = call ${handle} @handle(ptr %plan, i64 6)
  %f = call ptr @pointer(ptr %plan, i64 7)
  %bytes = call i64 @word(ptr %plan, i64 11)
  switch i64 %kind, label %reduce [ i64 1, label %gather
                                    i64 2, label %broadcast
                                    i64 3, label %permute ]
reduce:
  %r0 = call i32 %f(ptr %in, ptr %out, i32 %count, ${handle} %type, ${handle} %op, ${handle} %comm, ptr %first)
  br label %done
gather:
  %r1 = call i32 %f(ptr %in, i32 %count, ${handle} %type, ptr %out, i32 %count, ${handle} %type, ${handle} %comm, ptr %first)
  br label %done
broadcast:
  %is_root = call i64 @word(ptr %plan, i64 13)
  %root = icmp eq i64 %is_root, 0
  br i1 %root, label %own, label %send
own:
  %c = call ptr @memcpy(ptr %out, ptr %in, i64 %bytes)
  br label %send
send:
  %r2 = call i32 %f(ptr %out, i32 %count, ${handle} %type, i32 0, ${handle} %comm, ptr %first)
  br label %done
permute:
  call void @set(ptr %request, i64 5, i64 0)
  %source = call i64 @word(ptr %plan, i64 12)
  %target = call i64 @word(ptr %plan, i64 13)
  %has_source = icmp sge i64 %source, 0
  br i1 %has_source, label %receive, label %zeros
zeros:
  %z = call ptr @memset(ptr %out, i32 0, i64 %bytes)
  br label %maybe_send
receive:
  %g = call ptr @pointer(ptr %plan, i64 14)
  %source32 = trunc i64 %source to i32
  %r3 = call i32 %g(ptr %out, i32 %count, ${handle} %type, i32 %source32, i32 7, ${handle} %comm, ptr %first)
  call void @set(ptr %request, i64 5, i64 1)
  br label %maybe_send
maybe_send:
  %have = phi i64 [ 0, %zeros ], [ 1, %receive ]
  %said = phi i32 [ 0, %zeros ], [ %r3, %receive ]
  %has_target = icmp sge i64 %target, 0
  br i1 %has_target, label %send_on, label %done
send_on:
  %target32 = trunc i64 %target to i32
  %where = getelementptr i64, ptr %first, i64 %have
  %r4 = call i32 %f(ptr %in, i32 %count, ${handle} %type, i32 %target32, i32 7, ${handle} %comm, ptr %where)
  %have1 = add i64 %have, 1
  call void @set(ptr %request, i64 5, i64 %have1)
  %both = or i32 %said, %r4
  br label %done
done:
  %rc = phi i32 [ %r0, %reduce ], [ %r1, %gather ], [ %r2, %send ], [ %said, %maybe_send ], [ %both, %send_on ]
  %rc64 = sext i32 %rc to i64
  call void @set(ptr %request, i64 2, i64 %rc64)
  %made = ptrtoint ptr %request to i64
  ret i64 %made
}

; ---- waiting

; Return 0 while a request is in progress, 1 when it is done, 2 when MPI reports a failure.
define internal i32 @poll(ptr %request, ptr %plan) {
entry:
  %block = call i64 @word(ptr %plan, i64 19)
  %rings = icmp ne i64 %block, 0
  br i1 %rings, label %ring, label %each
ring:
  %r = call i32 @poll_ring(ptr %request, ptr %plan)
  ret i32 %r
each:
  %k = call i64 @word(ptr %request, i64 8)
  %count = call i64 @word(ptr %request, i64 5)
  %over = icmp sge i64 %k, %count
  br i1 %over, label %done, label %look
look:
  %slot = add i64 %k, 3
  %p = getelementptr i64, ptr %request, i64 %slot
  %state = call i32 @is_done(ptr %request, ptr %plan, ptr %p)
  %is_next = icmp eq i32 %state, 1
  br i1 %is_next, label %next, label %stay
next:
  %k1 = add i64 %k, 1
  call void @set(ptr %request, i64 8, i64 %k1)
  br label %each
stay:
  ret i32 %state
done:
  ret i32 1
}

; Like @poll, for one request of MPI.
define internal i32 @is_done(ptr %request, ptr %plan, ptr %p) {
entry:
  %flag = alloca i32
  %status = alloca [32 x i64]
  %complete = call ptr @pointer(ptr %plan, i64 16)
  %apart = icmp ne ptr %complete, null
  br i1 %apart, label %peek, label %plain
plain:
  %test = call ptr @pointer(ptr %plan, i64 8)
  store i32 0, ptr %flag, align 4
  %rc = call i32 %test(ptr %p, ptr %flag, ptr %status)
  br label %answer
peek:
  %own = load ${handle}, ptr %p, align 8
  %c = call i32 %complete(${handle} %own)
  store i32 %c, ptr %flag, align 4
  %is_complete = icmp ne i32 %c, 0
  br i1 %is_complete, label %finish, label %under_way
under_way:
  ret i32 0
finish:
  %mpi_wait = call ptr @pointer(ptr %plan, i64 18)
  %rc1 = call i32 %mpi_wait(ptr %p, ptr %status)
  br label %answer
answer:
  %said = phi i32 [ %rc, %plain ], [ %rc1, %finish ]
  %said64 = sext i32 %said to i64
  call void @set(ptr %request, i64 2, i64 %said64)
  %wrong = icmp ne i32 %said, 0
  %f = load i32, ptr %flag, align 4
  %is_set = icmp ne i32 %f, 0
  %state = select i1 %is_set, i32 1, i32 0
  %found = select i1 %wrong, i32 2, i32 %state
  ret i32 %found
}

define i32 @weft_mpi_wait(i64 %number) {
entry:
  %request = inttoptr i64 %number to ptr
  %plan = call ptr @pointer(ptr %request, i64 1)
  %test = call ptr @pointer(ptr %plan, i64 8)
  %failed_p = call ptr @pointer(ptr %plan, i64 9)
  %slow = call ptr @pointer(ptr %plan, i64 10)
  %complete = call ptr @pointer(ptr %plan, i64 16)
  %all = call ptr @pointer(ptr %plan, i64 17)
  %apart = icmp ne ptr %complete, null
  %flag = alloca i32
  %status = alloca [32 x i64]
  %rc0 = call i64 @word(ptr %request, i64 2)
  %wrong = icmp ne i64 %rc0, 0
  br i1 %wrong, label %tell, label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i1, %again ]
  %since = phi i64 [ 0, %entry ], [ %since1, %again ]
  %state = call i32 @poll(ptr %request, ptr %plan)
  switch i32 %state, label %tell [ i32 0, label %pending
                                   i32 1, label %done ]
pending:
  br i1 %apart, label %progress, label %spin
progress:
  %rc = call i32 %test(ptr %all, ptr %flag, ptr %status)
  %fine = icmp eq i32 %rc, 0
  br i1 %fine, label %spin, label %error
error:
  call void @set(ptr %request, i64 7, i64 0)
  %rc64 = sext i32 %rc to i64
  call void @set(ptr %request, i64 2, i64 %rc64)
  %verdict = call i32 %slow(i64 %number)
  call void @set(ptr %request, i64 2, i64 0)
  call void @set(ptr %request, i64 7, i64 1)
  %ignored = icmp eq i32 %verdict, 0
  br i1 %ignored, label %spin, label %fail
spin:
  %i1 = add i64 %i, 1
  %soon = icmp slt i64 %i1, ${spins}
  br i1 %soon, label %hint, label %slower
hint:
  call void @relax()
  br label %again
slower:
  %word = load atomic i64, ptr %failed_p monotonic, align 8
  %bad = icmp ne i64 %word, 0
  br i1 %bad, label %tell, label %clock
clock:
  %now = call i64 @nanoseconds()
  %is_first = icmp eq i64 %since, 0
  %from = select i1 %is_first, i64 %now, i64 %since
  %waited = sub i64 %now, %from
  %y = call i32 @sched_yield()
  %long = icmp sgt i64 %waited, 50000000
  br i1 %long, label %ask, label %again
ask:
  %answer = call i32 %slow(i64 %number)
  %u = call i32 @usleep(i32 20)
  %on = icmp eq i32 %answer, 0
  br i1 %on, label %again, label %fail
again:
  %since1 = phi i64 [ %since, %hint ], [ %from, %clock ], [ %now, %ask ]
  br label %look
tell:                                             ; the function reports what was awaited
  %said = call i32 %slow(i64 %number)
  br label %fail
fail:                                             ; MPI may still write: no memory of this request is freed
  ret i32 1
done:
  call void @free(ptr %request)
  ret i32 0
}

; ---- the ring

; Return the first element of segment %j of the block that a member at %position sends.
define internal i64 @segment_begin(ptr %plan, i64 %position, i64 %j) {
  %n = call i64 @word(ptr %plan, i64 22)
  %per_block = call i64 @word(ptr %plan, i64 21)
  %turn = sdiv i64 %j, %per_block
  %k = srem i64 %j, %per_block
  %back = sub i64 %position, %turn
  %up = mul i64 %n, 2
  %positive = add i64 %back, %up
  %number = srem i64 %positive, %n
  %block = call i64 @word(ptr %plan, i64 19)
  %count = call i64 @word(ptr %plan, i64 3)
  %segment = call i64 @word(ptr %plan, i64 20)
  %first = mul i64 %number, %block
  %further = mul i64 %k, %segment
  %wanted = add i64 %first, %further
  %end0 = add i64 %first, %block
  %end = call i64 @llvm.smin.i64(i64 %end0, i64 %count)
  %begin = call i64 @llvm.smin.i64(i64 %wanted, i64 %end)
  ret i64 %begin
}

; Return the number of elements of a segment; the last segment of a block is shorter.
define internal i64 @segment_length(ptr %plan, i64 %position, i64 %j, i64 %begin) {
  %n = call i64 @word(ptr %plan, i64 22)
  %per_block = call i64 @word(ptr %plan, i64 21)
  %turn = sdiv i64 %j, %per_block
  %back = sub i64 %position, %turn
  %up = mul i64 %n, 2
  %positive = add i64 %back, %up
  %number = srem i64 %positive, %n
  %block = call i64 @word(ptr %plan, i64 19)
  %count = call i64 @word(ptr %plan, i64 3)
  %segment = call i64 @word(ptr %plan, i64 20)
  %first = mul i64 %number, %block
  %end0 = add i64 %first, %block
  %end = call i64 @llvm.smin.i64(i64 %end0, i64 %count)
  %left = sub i64 %end, %begin
  %some = call i64 @llvm.smax.i64(i64 %left, i64 0)
  %length = call i64 @llvm.smin.i64(i64 %some, i64 %segment)
  ret i64 %length
}

define internal ptr @element(ptr %plan, ptr %base, i64 %i) alwaysinline {
  %bytes = call i64 @word(ptr %plan, i64 27)
  %offset = mul i64 %i, %bytes
  %p = getelementptr i8, ptr %base, i64 %offset
  ret ptr %p
}

; Return the memory that segment %j is received into before it is added.
define internal ptr @landing(ptr %plan, ptr %request, i64 %j) alwaysinline {
  %slot = and i64 %j, 3
  %segment = call i64 @word(ptr %plan, i64 20)
  %begin = mul i64 %slot, %segment
  %memory = getelementptr i64, ptr %request, i64 24
  %p = call ptr @element(ptr %plan, ptr %memory, i64 %begin)
  ret ptr %p
}

; Send or receive segment %j; return MPI's return code.
define internal i32 @travel(ptr %plan, ptr %request, ptr %where, i64 %length, i64 %slot, i64 %function, i64 %peer) {
  %bytes = call i64 @word(ptr %plan, i64 27)
  %size64 = mul i64 %length, %bytes
  %size = trunc i64 %size64 to i32
  %type = call ${handle} @handle(ptr %plan, i64 4)
  %comm = call ${handle} @handle(ptr %plan, i64 6)
  %f = call ptr @pointer(ptr %plan, i64 %function)
  %peer64 = call i64 @word(ptr %plan, i64 %peer)
  %rank = trunc i64 %peer64 to i32
  %tag64 = call i64 @word(ptr %request, i64 10)
  %tag = trunc i64 %tag64 to i32
  %p = getelementptr i64, ptr %request, i64 %slot
  %rc = call i32 %f(ptr %where, i32 %size, ${handle} %type, i32 %rank, i32 %tag, ${handle} %comm, ptr %p)
  %rc64 = sext i32 %rc to i64
  call void @set(ptr %request, i64 2, i64 %rc64)
  ret i32 %rc
}

define i64 @weft_ring_start(i64 %number, ptr %in, ptr %out) {
entry:
  %plan = inttoptr i64 %number to ptr
  %failed_p = call ptr @pointer(ptr %plan, i64 9)
  %failed = load atomic i64, ptr %failed_p monotonic, align 8
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %refuse, label %make
refuse:
  ret i64 -1
make:
  %segment = call i64 @word(ptr %plan, i64 20)
  %bytes = call i64 @word(ptr %plan, i64 27)
  %one = mul i64 %segment, %bytes
  %four = mul i64 %one, 4
  %all = add i64 %four, 192
  %request = call ptr @malloc(i64 %all)
  %head = call ptr @memset(ptr %request, i32 0, i64 192)
  %wait = call i64 @word(ptr %plan, i64 1)
  call void @set(ptr %request, i64 0, i64 %wait)
  call void @set(ptr %request, i64 1, i64 %number)
  %began = call i64 @nanoseconds()
  call void @set(ptr %request, i64 6, i64 %began)
  call void @set(ptr %request, i64 7, i64 1)
  %in_at = ptrtoint ptr %in to i64
  %out_at = ptrtoint ptr %out to i64
  call void @set(ptr %request, i64 8, i64 %in_at)
  call void @set(ptr %request, i64 9, i64 %out_at)
  %counter = call ptr @pointer(ptr %plan, i64 28)
  %turn = atomicrmw add ptr %counter, i64 1 monotonic
  %low = and i64 %turn, 8191
  %tag = add i64 %low, 8192
  call void @set(ptr %request, i64 10, i64 %tag)
  %state = call i32 @poll_ring(ptr %request, ptr %plan)
  %made = ptrtoint ptr %request to i64
  ret i64 %made
}

; Like @poll, for a ring: do everything that is possible now.
define internal i32 @poll_ring(ptr %request, ptr %plan) {
entry:
  %arrays = alloca [2 x ptr]
  %n = call i64 @word(ptr %plan, i64 22)
  %per_block = call i64 @word(ptr %plan, i64 21)
  %to_send = call i64 @word(ptr %plan, i64 23)
  %to_receive = sub i64 %to_send, 1
  %turns = sub i64 %n, 1
  %adding = mul i64 %turns, %per_block
  %total = mul i64 %adding, 2
  %in = call ptr @pointer(ptr %request, i64 8)
  %out = call ptr @pointer(ptr %request, i64 9)
  %bytes = call i64 @word(ptr %plan, i64 27)
  %combine = call ptr @pointer(ptr %plan, i64 26)
  br label %ask
ask:                                              ; post the receive of the next segment
  %asked = call i64 @word(ptr %request, i64 11)
  %received0 = call i64 @word(ptr %request, i64 12)
  %sent0 = call i64 @word(ptr %request, i64 14)
  %ask_any = icmp slt i64 %asked, %total
  %ask_limit = add i64 %received0, 4
  %ask_free = icmp slt i64 %asked, %ask_limit
  %before = sub i64 %asked, %adding
  %is_sent = icmp sgt i64 %sent0, %before
  %a1 = and i1 %ask_any, %ask_free
  %a2 = and i1 %a1, %is_sent
  br i1 %a2, label %post, label %take
post:
  %pb = call i64 @segment_begin(ptr %plan, i64 %to_receive, i64 %asked)
  %pl = call i64 @segment_length(ptr %plan, i64 %to_receive, i64 %asked, i64 %pb)
  %is_added = icmp slt i64 %asked, %adding
  %landing = call ptr @landing(ptr %plan, ptr %request, i64 %asked)
  %final = call ptr @element(ptr %plan, ptr %out, i64 %pb)
  %where = select i1 %is_added, ptr %landing, ptr %final
  %pm = and i64 %asked, 3
  %ps = add i64 %pm, 16
  %prc = call i32 @travel(ptr %plan, ptr %request, ptr %where, i64 %pl, i64 %ps, i64 14, i64 24)
  %asked1 = add i64 %asked, 1
  call void @set(ptr %request, i64 11, i64 %asked1)
  %pfine = icmp eq i32 %prc, 0
  br i1 %pfine, label %ask, label %failed
take:                                             ; process received segments
  %received = call i64 @word(ptr %request, i64 12)
  %asked2 = call i64 @word(ptr %request, i64 11)
  %take_any = icmp slt i64 %received, %asked2
  br i1 %take_any, label %arrived, label %release
arrived:
  %tm = and i64 %received, 3
  %ts = add i64 %tm, 16
  %tp = getelementptr i64, ptr %request, i64 %ts
  %tstate = call i32 @is_done(ptr %request, ptr %plan, ptr %tp)
  switch i32 %tstate, label %failed [ i32 0, label %release
                                      i32 1, label %has ]
has:
  %tb = call i64 @segment_begin(ptr %plan, i64 %to_receive, i64 %received)
  %tl = call i64 @segment_length(ptr %plan, i64 %to_receive, i64 %received, i64 %tb)
  %t_added = icmp slt i64 %received, %adding
  %t_some = icmp sgt i64 %tl, 0
  %t_both = and i1 %t_added, %t_some
  br i1 %t_both, label %add, label %has_next
add:
  %tland = call ptr @landing(ptr %plan, ptr %request, i64 %received)
  %tin = call ptr @element(ptr %plan, ptr %in, i64 %tb)
  %tout = call ptr @element(ptr %plan, ptr %out, i64 %tb)
  %second = getelementptr ptr, ptr %arrays, i64 1
  store ptr %tland, ptr %arrays, align 8
  store ptr %tin, ptr %second, align 8
  call void %combine(ptr %tout, ptr %arrays, i64 2, i64 %tl)
  br label %has_next
has_next:
  %received1 = add i64 %received, 1
  call void @set(ptr %request, i64 12, i64 %received1)
  br label %ask
release:                                          ; complete finished sends
  %sent = call i64 @word(ptr %request, i64 14)
  %sending0 = call i64 @word(ptr %request, i64 13)
  %rel_any = icmp slt i64 %sent, %sending0
  br i1 %rel_any, label %left, label %give
left:
  %lm = and i64 %sent, 3
  %ls = add i64 %lm, 20
  %lp = getelementptr i64, ptr %request, i64 %ls
  %lstate = call i32 @is_done(ptr %request, ptr %plan, ptr %lp)
  switch i32 %lstate, label %failed [ i32 0, label %give
                                      i32 1, label %gone ]
gone:
  %sent1 = add i64 %sent, 1
  call void @set(ptr %request, i64 14, i64 %sent1)
  br label %release
give:                                             ; start possible sends
  %sending = call i64 @word(ptr %request, i64 13)
  %sent2 = call i64 @word(ptr %request, i64 14)
  %received2 = call i64 @word(ptr %request, i64 12)
  %give_any = icmp slt i64 %sending, %total
  %give_limit = add i64 %sent2, 4
  %give_free = icmp slt i64 %sending, %give_limit
  %source = sub i64 %sending, %per_block
  %has_come = icmp sgt i64 %received2, %source
  %g1 = and i1 %give_any, %give_free
  %g2 = and i1 %g1, %has_come
  br i1 %g2, label %send, label %end
send:
  %sb = call i64 @segment_begin(ptr %plan, i64 %to_send, i64 %sending)
  %sl = call i64 @segment_length(ptr %plan, i64 %to_send, i64 %sending, i64 %sb)
  %is_first = icmp slt i64 %sending, %per_block
  %base = select i1 %is_first, ptr %in, ptr %out
  %swhere = call ptr @element(ptr %plan, ptr %base, i64 %sb)
  %sm = and i64 %sending, 3
  %ss = add i64 %sm, 20
  %src = call i32 @travel(ptr %plan, ptr %request, ptr %swhere, i64 %sl, i64 %ss, i64 7, i64 25)
  %sending1 = add i64 %sending, 1
  call void @set(ptr %request, i64 13, i64 %sending1)
  %sfine = icmp eq i32 %src, 0
  br i1 %sfine, label %give, label %failed
end:
  %all_received = icmp eq i64 %received2, %total
  %all_sent = icmp eq i64 %sent2, %total
  %both = and i1 %all_received, %all_sent
  %state = zext i1 %both to i32
  ret i32 %state
failed:
  ret i32 2
}

define void @weft_mpi_progress(ptr %words) {
entry:
  %flag = alloca i32
  %status = alloca [32 x i64]
  %test = call ptr @pointer(ptr %words, i64 1)
  %request = call ptr @pointer(ptr %words, i64 2)
  %pause64 = call i64 @word(ptr %words, i64 3)
  %pause = trunc i64 %pause64 to i32
  br label %look
look:
  %stop = load atomic i64, ptr %words monotonic, align 8
  %ends = icmp ne i64 %stop, 0
  br i1 %ends, label %done, label %again
again:
  %rc = call i32 %test(ptr %request, ptr %flag, ptr %status)
  %u = call i32 @usleep(i32 %pause)
  br label %look
done:
  ret void
}

; Collectives by MPI: each is started without waiting, and tested until it is done.
;
;   i64 weft_mpi_start(i64 plan, ptr in, ptr out)      a request, or -1
;   i32 weft_mpi_wait(i64 request)
;   void weft_mpi_progress(ptr words)                  makes progress until it is stopped, for a thread of its own
;
; What MPI has sent as far as its caller is concerned may still need progress here to arrive there.
;
; Words of a plan: 0 start, 1 wait, 2 kind, 3 count as MPI is given it, 4 datatype, 5 reduction, 6 communicator, 7 the function of MPI,
;   8 MPI_Test, 9 address of the word that is nonzero once a process failed, 10 called while waiting: i32 (i64 request), 0 to go on,
;   11 bytes of the input, 12 source in a permute or -1, 13 its target or -1, 14 the function that receives, 15 bytes of the output,
;   16 MPIX_Request_is_complete or 0, 17 a request of the communicator of all, 18 MPI_Wait.
; MPICH ends the process if a function that makes progress meets a lost peer, whatever the error handler, except in calls for the communicator
;   of all. With word 16 such a call, a test of word 17, makes the progress; only the completed request itself is then touched.
; Words of the progress: 0 nonzero to stop, 1 MPI_Test, 2 a request, 3 microseconds between two tests.
; Words of a request: 0 wait, 1 plan, 2 what MPI answered last, 3 and 4 MPI's requests, 5 how many there are, 6 started, 7 whether the answer
;   is about this request.
; Kinds: 0 all_reduce and reduce_scatter, 1 all_gather and all_to_all, 2 broadcast from the first, 3 permute.
;
; Placeholders: ${handle}, the type of MPI's handles; the others are those of windows.ll.

declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare i32 @sched_yield()
declare i32 @usleep(i32)
declare i32 @clock_gettime(i32, ptr)
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
  %request = call ptr @malloc(i64 64)
  %wait = call i64 @word(ptr %plan, i64 1)
  call void @set(ptr %request, i64 0, i64 %wait)
  call void @set(ptr %request, i64 1, i64 %number)
  call void @set(ptr %request, i64 2, i64 0)
  call void @set(ptr %request, i64 5, i64 1)
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

define i32 @weft_mpi_wait(i64 %number) {
entry:
  %request = inttoptr i64 %number to ptr
  %plan = call ptr @pointer(ptr %request, i64 1)
  %test = call ptr @pointer(ptr %plan, i64 8)
  %failed_p = call ptr @pointer(ptr %plan, i64 9)
  %slow = call ptr @pointer(ptr %plan, i64 10)
  %complete = call ptr @pointer(ptr %plan, i64 16)
  %all = call ptr @pointer(ptr %plan, i64 17)
  %mpi_wait = call ptr @pointer(ptr %plan, i64 18)
  %apart = icmp ne ptr %complete, null
  %flag = alloca i32
  %status = alloca [32 x i64]
  %count = call i64 @word(ptr %request, i64 5)
  %rc0 = call i64 @word(ptr %request, i64 2)
  %wrong = icmp ne i64 %rc0, 0
  br i1 %wrong, label %tell, label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k1, %next ]
  %over = icmp sge i64 %k, %count
  br i1 %over, label %done, label %begin
begin:
  %slot = add i64 %k, 3
  %p = getelementptr i64, ptr %request, i64 %slot
  call void @set(ptr %request, i64 7, i64 %k)
  br label %look
look:
  %i = phi i64 [ 0, %begin ], [ %i1, %again ]
  %since = phi i64 [ 0, %begin ], [ %since1, %again ]
  br i1 %apart, label %peek, label %plain
plain:
  call void @set(ptr %request, i64 7, i64 1)
  %rc = call i32 %test(ptr %p, ptr %flag, ptr %status)
  %rc64 = sext i32 %rc to i64
  call void @set(ptr %request, i64 2, i64 %rc64)
  %fine = icmp eq i32 %rc, 0
  br i1 %fine, label %flagged, label %tell
flagged:
  %f = load i32, ptr %flag, align 4
  %is_done = icmp ne i32 %f, 0
  br i1 %is_done, label %next, label %spin
peek:
  %own = load ${handle}, ptr %p, align 8
  %c = call i32 %complete(${handle} %own)
  %is_complete = icmp ne i32 %c, 0
  br i1 %is_complete, label %finish, label %progress
finish:
  call void @set(ptr %request, i64 7, i64 1)
  %rc1 = call i32 %mpi_wait(ptr %p, ptr %status)
  %rc1_64 = sext i32 %rc1 to i64
  call void @set(ptr %request, i64 2, i64 %rc1_64)
  %fine1 = icmp eq i32 %rc1, 0
  br i1 %fine1, label %next, label %tell
progress:
  %rc2 = call i32 %test(ptr %all, ptr %flag, ptr %status)
  %fine2 = icmp eq i32 %rc2, 0
  br i1 %fine2, label %spin, label %error
error:
  call void @set(ptr %request, i64 7, i64 0)
  %rc2_64 = sext i32 %rc2 to i64
  call void @set(ptr %request, i64 2, i64 %rc2_64)
  %verdict = call i32 %slow(i64 %number)
  call void @set(ptr %request, i64 2, i64 0)
  %ignored = icmp eq i32 %verdict, 0
  br i1 %ignored, label %spin, label %fail
next:
  %k1 = add i64 %k, 1
  br label %each
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
tell:                                             ; it says what was awaited
  %said = call i32 %slow(i64 %number)
  br label %fail
fail:                                             ; MPI may still write: nothing of this request is freed
  ret i32 1
done:
  call void @free(ptr %request)
  ret i32 0
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

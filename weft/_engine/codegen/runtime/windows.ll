; Collectives between processes: the entry points that all transports share, and the exchange through windows of shared memory.
;
;   i64 weft_collective_start(i64 plan, ptr in, ptr out)     a request, or -1
;   i32 weft_collective_wait(i64 request)                    0 if the output has its values, else nonzero
;   i64 weft_window_start(i64 plan, ptr in, ptr out)
;   i32 weft_window_wait(i64 request)
;
; Plans and requests begin with the addresses of their transport's functions: start and wait in a plan, wait in a request.
;
; Each set of ranks on one machine shares a window. For each of several channels and each member, it has a counter on its own cache
; line, and two slots. A collective consists of steps: in each step a rank writes its slot, increments its counter, waits until all
; members have counted, and reads the slots. The two slots of a channel alternate from step to step: a rank that reuses a slot has
; seen all members count the step after they read it. So each step waits once, and the sender of a one-step collective need not wait.
; Successive collectives use the channels in turn; a collective whose channel is in use completes the older one first.
;
; Words of the group (private memory): 0 window, 1 members, 2 this member, 3 bytes of a slot, 4 channels, 5 collectives started,
;   6 address of a word that is nonzero once a process failed, 7 function called while waiting: i32 (i64 request), 0 to continue,
;   8 offset of the slots; from 16 the current request of each channel; from 16 + channels the steps that each has made.
; Words of a plan: 0 start, 1 wait, 2 group, 3 kind, 4 bytes of a block, 5 combines slots, 6 bytes of an element, 7 source or -1,
;   8 steps, 9 bytes of a block in a step, 10 addresses of slots to combine.
; Words of a request: 0 wait, 1 plan, 2 in, 3 out, 4 status or -1, 5 channel, 6 the awaited count, 7 steps posted.
; Kinds: 0 all_gather, 1 all_reduce in which every member reduces everything, 2 reduce_scatter, 3 all_to_all, 4 the block of a
;   source or zeros, 5 all_reduce in which each member reduces a part, which the next step gathers.
;
; library/process_calls.py fills in the placeholders in braces.

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

; ---- functions of all transports

define i64 @weft_collective_start(i64 %plan, ptr %in, ptr %out) {
  %p = inttoptr i64 %plan to ptr
  %start = load ptr, ptr %p, align 8
  %request = call i64 %start(i64 %plan, ptr %in, ptr %out)
  ret i64 %request
}

define i32 @weft_collective_wait(i64 %request) {
entry:
  %began = icmp sgt i64 %request, 0
  br i1 %began, label %run, label %failed
run:
  %p = inttoptr i64 %request to ptr
  %wait = load ptr, ptr %p, align 8
  %status = call i32 %wait(i64 %request)
  ret i32 %status
failed:
  ret i32 1
}

; ---- windows

define internal ptr @counter(ptr %group, i64 %channel, i64 %member) alwaysinline {
  %window = call i64 @word(ptr %group, i64 0)
  %n = call i64 @word(ptr %group, i64 1)
  %row = mul i64 %channel, %n
  %line = add i64 %row, %member
  %offset = shl i64 %line, 6
  %at = add i64 %window, %offset
  %p = inttoptr i64 %at to ptr
  ret ptr %p
}

define internal ptr @slot(ptr %group, i64 %channel, i64 %member, i64 %step) alwaysinline {
  %window = call i64 @word(ptr %group, i64 0)
  %n = call i64 @word(ptr %group, i64 1)
  %bytes = call i64 @word(ptr %group, i64 3)
  %slots = call i64 @word(ptr %group, i64 8)
  %row = mul i64 %channel, %n
  %line = add i64 %row, %member
  %two = shl i64 %line, 1
  %parity = and i64 %step, 1
  %number = add i64 %two, %parity
  %offset = mul i64 %number, %bytes
  %begin = add i64 %window, %slots
  %at = add i64 %begin, %offset
  %p = inttoptr i64 %at to ptr
  ret ptr %p
}

; Return the number of bytes in part `m` of `length` bytes, divided into parts of `part` bytes.
define internal i64 @part_length(i64 %length, i64 %part, i64 %m) alwaysinline {
  %before = mul i64 %m, %part
  %left = sub i64 %length, %before
  %some = call i64 @llvm.smax.i64(i64 %left, i64 0)
  %most = call i64 @llvm.smin.i64(i64 %some, i64 %part)
  ret i64 %most
}

; Write this member's data of step `s` into its slot; %count is the number of earlier steps of the channel.
define internal void @put(ptr %request, ptr %plan, ptr %group, i64 %s, i64 %count) noinline {
entry:
  %in = call i64 @word(ptr %request, i64 2)
  %channel = call i64 @word(ptr %request, i64 5)
  %kind = call i64 @word(ptr %plan, i64 3)
  %block = call i64 @word(ptr %plan, i64 4)
  %piece = call i64 @word(ptr %plan, i64 9)
  %source = call i64 @word(ptr %plan, i64 7)
  %n = call i64 @word(ptr %group, i64 1)
  %me = call i64 @word(ptr %group, i64 2)
  %mine = call ptr @slot(ptr %group, i64 %channel, i64 %me, i64 %count)
  %two_phase = icmp eq i64 %kind, 5
  br i1 %two_phase, label %phase, label %where
phase:
  %odd = trunc i64 %s to i1
  br i1 %odd, label %done, label %where
where:
  %half = lshr i64 %s, 1
  %k = select i1 %two_phase, i64 %half, i64 %s
  %begin = mul i64 %k, %piece
  %left = sub i64 %block, %begin
  %length = call i64 @llvm.smin.i64(i64 %left, i64 %piece)
  %from = add i64 %in, %begin
  %is2 = icmp eq i64 %kind, 2
  %is3 = icmp eq i64 %kind, 3
  %blocks = or i1 %is2, %is3
  br i1 %blocks, label %each, label %one
one:
  %p = inttoptr i64 %from to ptr
  %c1 = call ptr @memcpy(ptr %mine, ptr %p, i64 %length)
  br label %done
each:
  %m = phi i64 [ 0, %where ], [ %m1, %each ]
  %row = mul i64 %m, %block
  %a = add i64 %from, %row
  %ap = inttoptr i64 %a to ptr
  %t = mul i64 %m, %piece
  %tp = getelementptr i8, ptr %mine, i64 %t
  %c2 = call ptr @memcpy(ptr %tp, ptr %ap, i64 %length)
  %m1 = add i64 %m, 1
  %more = icmp slt i64 %m1, %n
  br i1 %more, label %each, label %done
done:
  ret void
}

; Read step `s` from the slots of all members.
define internal void @take(ptr %request, ptr %plan, ptr %group, i64 %s, i64 %count) noinline {
entry:
  %out = call i64 @word(ptr %request, i64 3)
  %channel = call i64 @word(ptr %request, i64 5)
  %kind = call i64 @word(ptr %plan, i64 3)
  %block = call i64 @word(ptr %plan, i64 4)
  %piece = call i64 @word(ptr %plan, i64 9)
  %element = call i64 @word(ptr %plan, i64 6)
  %source = call i64 @word(ptr %plan, i64 7)
  %combine_at = call i64 @word(ptr %plan, i64 5)
  %combine = inttoptr i64 %combine_at to ptr
  %list_at = call i64 @word(ptr %plan, i64 10)
  %list = inttoptr i64 %list_at to ptr
  %n = call i64 @word(ptr %group, i64 1)
  %me = call i64 @word(ptr %group, i64 2)
  %two_phase = icmp eq i64 %kind, 5
  %half = lshr i64 %s, 1
  %k = select i1 %two_phase, i64 %half, i64 %s
  %begin = mul i64 %k, %piece
  %left = sub i64 %block, %begin
  %length = call i64 @llvm.smin.i64(i64 %left, i64 %piece)
  %to = add i64 %out, %begin
  %to_p = inttoptr i64 %to to ptr
  %part = sdiv i64 %piece, %n
  %elements = sdiv i64 %length, %element
  switch i64 %kind, label %gather [ i64 1, label %reduce
                                    i64 2, label %reduce
                                    i64 3, label %exchange
                                    i64 4, label %from
                                    i64 5, label %phase ]
gather:
  %g = phi i64 [ 0, %entry ], [ %g1, %gather ]
  %gs = call ptr @slot(ptr %group, i64 %channel, i64 %g, i64 %count)
  %grow = mul i64 %g, %block
  %gt = add i64 %to, %grow
  %gp = inttoptr i64 %gt to ptr
  %c1 = call ptr @memcpy(ptr %gp, ptr %gs, i64 %length)
  %g1 = add i64 %g, 1
  %gmore = icmp slt i64 %g1, %n
  br i1 %gmore, label %gather, label %done
exchange:
  %x = phi i64 [ 0, %entry ], [ %x1, %exchange ]
  %xs = call ptr @slot(ptr %group, i64 %channel, i64 %x, i64 %count)
  %xo = mul i64 %me, %piece
  %xf = getelementptr i8, ptr %xs, i64 %xo
  %xrow = mul i64 %x, %block
  %xt = add i64 %to, %xrow
  %xp = inttoptr i64 %xt to ptr
  %c2 = call ptr @memcpy(ptr %xp, ptr %xf, i64 %length)
  %x1 = add i64 %x, 1
  %xmore = icmp slt i64 %x1, %n
  br i1 %xmore, label %exchange, label %done
from:
  %none = icmp slt i64 %source, 0
  br i1 %none, label %zeros, label %copy
zeros:
  %c3 = call ptr @memset(ptr %to_p, i32 0, i64 %length)
  br label %done
copy:
  %fs = call ptr @slot(ptr %group, i64 %channel, i64 %source, i64 %count)
  %c4 = call ptr @memcpy(ptr %to_p, ptr %fs, i64 %length)
  br label %done
reduce:
  %is2 = icmp eq i64 %kind, 2
  %mine = mul i64 %me, %piece
  %offset = select i1 %is2, i64 %mine, i64 0
  br label %list_r
list_r:
  %r = phi i64 [ 0, %reduce ], [ %r1, %list_r ]
  %rs = call ptr @slot(ptr %group, i64 %channel, i64 %r, i64 %count)
  %rp = getelementptr i8, ptr %rs, i64 %offset
  %rl = getelementptr ptr, ptr %list, i64 %r
  store ptr %rp, ptr %rl, align 8
  %r1 = add i64 %r, 1
  %rmore = icmp slt i64 %r1, %n
  br i1 %rmore, label %list_r, label %combine_r
combine_r:
  call void %combine(ptr %to_p, ptr %list, i64 %n, i64 %elements)
  br label %done
phase:
  %odd = trunc i64 %s to i1
  br i1 %odd, label %collect, label %prepare
prepare:
  %part_begin = mul i64 %me, %part
  %part_bytes = call i64 @part_length(i64 %length, i64 %part, i64 %me)
  %part_elements = sdiv i64 %part_bytes, %element
  br label %list_p
list_p:
  %q = phi i64 [ 0, %prepare ], [ %q1, %list_p ]
  %qs = call ptr @slot(ptr %group, i64 %channel, i64 %q, i64 %count)
  %qp = getelementptr i8, ptr %qs, i64 %part_begin
  %ql = getelementptr ptr, ptr %list, i64 %q
  store ptr %qp, ptr %ql, align 8
  %q1 = add i64 %q, 1
  %qmore = icmp slt i64 %q1, %n
  br i1 %qmore, label %list_p, label %combine_p
combine_p:
  %after = add i64 %count, 1
  %result = call ptr @slot(ptr %group, i64 %channel, i64 %me, i64 %after)
  call void %combine(ptr %result, ptr %list, i64 %n, i64 %part_elements)
  br label %done
collect:
  %u = phi i64 [ 0, %phase ], [ %u1, %collect ]
  %us = call ptr @slot(ptr %group, i64 %channel, i64 %u, i64 %count)
  %ub = mul i64 %u, %part
  %un = call i64 @part_length(i64 %length, i64 %part, i64 %u)
  %ut = add i64 %to, %ub
  %up = inttoptr i64 %ut to ptr
  %c5 = call ptr @memcpy(ptr %up, ptr %us, i64 %un)
  %u1 = add i64 %u, 1
  %umore = icmp slt i64 %u1, %n
  br i1 %umore, label %collect, label %done
done:
  ret void
}

; Announce that this member has made `count` steps.
define internal void @arrive(ptr %group, i64 %channel, i64 %count) alwaysinline {
  %me = call i64 @word(ptr %group, i64 2)
  %p = call ptr @counter(ptr %group, i64 %channel, i64 %me)
  store atomic i64 %count, ptr %p release, align 8
  ret void
}

; Wait until all members have made `count` steps. Return 0, or nonzero after a failure.
define internal i32 @await(ptr %request, ptr %group, i64 %channel, i64 %count) noinline {
entry:
  call void @set(ptr %request, i64 6, i64 %count)
  %n = call i64 @word(ptr %group, i64 1)
  %failed_at = call i64 @word(ptr %group, i64 6)
  %failed = inttoptr i64 %failed_at to ptr
  %slow_at = call i64 @word(ptr %group, i64 7)
  %slow = inttoptr i64 %slow_at to ptr
  %number = ptrtoint ptr %request to i64
  br label %member
member:
  %m = phi i64 [ 0, %entry ], [ %m1, %there ]
  %p = call ptr @counter(ptr %group, i64 %channel, i64 %m)
  br label %look
look:
  %i = phi i64 [ 0, %member ], [ %i1, %again ]
  %since = phi i64 [ 0, %member ], [ %since1, %again ]
  %have = load atomic i64, ptr %p acquire, align 8
  %is_there = icmp sge i64 %have, %count
  br i1 %is_there, label %there, label %spin
there:
  %m1 = add i64 %m, 1
  %all = icmp sge i64 %m1, %n
  br i1 %all, label %ok, label %member
spin:
  %i1 = add i64 %i, 1
  %soon = icmp slt i64 %i1, ${spins}
  br i1 %soon, label %hint, label %slower
hint:
  call void @relax()
  br label %again
slower:
  %word = load atomic i64, ptr %failed monotonic, align 8
  %bad = icmp ne i64 %word, 0
  br i1 %bad, label %fail, label %clock
clock:
  %now = call i64 @nanoseconds()
  %first = icmp eq i64 %since, 0
  %begin = select i1 %first, i64 %now, i64 %since
  %waited = sub i64 %now, %begin
  %short = icmp slt i64 %waited, 2000000
  br i1 %short, label %yield, label %sleep
yield:
  %y = call i32 @sched_yield()
  br label %again
sleep:
  %z = call i32 @usleep(i32 50)
  %long = icmp sgt i64 %waited, 50000000
  br i1 %long, label %ask, label %again
ask:
  %answer = call i32 %slow(i64 %number)
  %on = icmp eq i32 %answer, 0
  br i1 %on, label %asked, label %out
asked:
  %later = sub i64 %now, 2000000
  br label %again
again:
  %since1 = phi i64 [ %since, %hint ], [ %begin, %yield ], [ %begin, %sleep ], [ %later, %asked ]
  br label %look
fail:                                             ; the function reports what was awaited
  %said = call i32 %slow(i64 %number)
  ret i32 1
out:
  ret i32 %answer
ok:
  ret i32 0
}

; Complete a request and free its channel; the status is stored in the request.
define internal void @complete(ptr %request) noinline {
entry:
  %status = call i64 @word(ptr %request, i64 4)
  %pending = icmp slt i64 %status, 0
  br i1 %pending, label %run, label %out
run:
  %plan_at = call i64 @word(ptr %request, i64 1)
  %plan = inttoptr i64 %plan_at to ptr
  %group_at = call i64 @word(ptr %plan, i64 2)
  %group = inttoptr i64 %group_at to ptr
  %channel = call i64 @word(ptr %request, i64 5)
  %steps = call i64 @word(ptr %plan, i64 8)
  %channels = call i64 @word(ptr %group, i64 4)
  %made_at0 = add i64 %channels, %channel
  %made_at = add i64 %made_at0, 16
  %base = call i64 @word(ptr %group, i64 %made_at)
  br label %step
step:
  %s = phi i64 [ 0, %run ], [ %s1, %next ]
  %count = add i64 %base, %s
  %count1 = add i64 %count, 1
  %posted = icmp eq i64 %s, 0
  br i1 %posted, label %wait, label %write
write:
  call void @put(ptr %request, ptr %plan, ptr %group, i64 %s, i64 %count)
  call void @arrive(ptr %group, i64 %channel, i64 %count1)
  br label %wait
wait:
  %answer = call i32 @await(ptr %request, ptr %group, i64 %channel, i64 %count1)
  %fine = icmp eq i32 %answer, 0
  br i1 %fine, label %read, label %finish
read:
  call void @take(ptr %request, ptr %plan, ptr %group, i64 %s, i64 %count)
  br label %next
next:
  %s1 = add i64 %s, 1
  %more = icmp slt i64 %s1, %steps
  br i1 %more, label %step, label %finish
finish:
  %said = sext i32 %answer to i64
  call void @set(ptr %request, i64 4, i64 %said)
  %end = add i64 %base, %steps
  call void @set(ptr %group, i64 %made_at, i64 %end)
  %under_way = add i64 %channel, 16
  call void @set(ptr %group, i64 %under_way, i64 0)
  br label %out
out:
  ret void
}

define i64 @weft_window_start(i64 %number, ptr %in, ptr %out) {
entry:
  %plan = inttoptr i64 %number to ptr
  %group_at = call i64 @word(ptr %plan, i64 2)
  %group = inttoptr i64 %group_at to ptr
  %failed_at = call i64 @word(ptr %group, i64 6)
  %failed_p = inttoptr i64 %failed_at to ptr
  %failed = load atomic i64, ptr %failed_p monotonic, align 8
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %refuse, label %make
refuse:
  ret i64 -1
make:
  %request = call ptr @malloc(i64 64)
  %wait = call i64 @word(ptr %plan, i64 1)
  %in_at = ptrtoint ptr %in to i64
  %out_at = ptrtoint ptr %out to i64
  call void @set(ptr %request, i64 0, i64 %wait)
  call void @set(ptr %request, i64 1, i64 %number)
  call void @set(ptr %request, i64 2, i64 %in_at)
  call void @set(ptr %request, i64 3, i64 %out_at)
  call void @set(ptr %request, i64 4, i64 0)
  %made = ptrtoint ptr %request to i64
  %steps = call i64 @word(ptr %plan, i64 8)
  %any = icmp sgt i64 %steps, 0
  br i1 %any, label %begin, label %empty
empty:
  ret i64 %made
begin:
  %started = call i64 @word(ptr %group, i64 5)
  %channels = call i64 @word(ptr %group, i64 4)
  %channel = srem i64 %started, %channels
  %started1 = add i64 %started, 1
  call void @set(ptr %group, i64 5, i64 %started1)
  %under_way = add i64 %channel, 16
  %older = call i64 @word(ptr %group, i64 %under_way)
  %taken = icmp ne i64 %older, 0
  br i1 %taken, label %finish, label %post
finish:
  %older_p = inttoptr i64 %older to ptr
  call void @complete(ptr %older_p)
  br label %post
post:
  call void @set(ptr %request, i64 4, i64 -1)
  call void @set(ptr %request, i64 5, i64 %channel)
  call void @set(ptr %group, i64 %under_way, i64 %made)
  %made_at0 = add i64 %channels, %channel
  %made_at = add i64 %made_at0, 16
  %base = call i64 @word(ptr %group, i64 %made_at)
  %base1 = add i64 %base, 1
  call void @put(ptr %request, ptr %plan, ptr %group, i64 0, i64 %base)
  call void @arrive(ptr %group, i64 %channel, i64 %base1)
  ret i64 %made
}

define i32 @weft_window_wait(i64 %number) {
  %request = inttoptr i64 %number to ptr
  call void @complete(ptr %request)
  %status = call i64 @word(ptr %request, i64 4)
  call void @free(ptr %request)
  %answer = trunc i64 %status to i32
  ret i32 %answer
}

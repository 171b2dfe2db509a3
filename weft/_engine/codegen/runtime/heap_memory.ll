; Allocation of heap blocks (`heap.ll`) if no free list has one, and release of mapped blocks. Callers hold the GIL.
;
;   ptr  weft_heap_list_alloc(i64 class, i64 size, i64 nbytes)   a block of a class of this size, counted as `nbytes`, or null
;   ptr  weft_heap_map_alloc(i64 nbytes)                         a mapped block
;   void weft_heap_map_free(ptr, i64 capacity)
;   void weft_heap_trim()                                        frees cached blocks

%header = type { i64, ptr, i64, i64, i64, ptr, i64 }

@weft_heap_live = global i64 0
@weft_heap_peak = global i64 0
@weft_heap_allocations = global i64 0              ; number of blocks since the start
@weft_heap_largest = global i64 0                  ; requested bytes of the largest block
@weft_heap_cached = global i64 0
@weft_heap_limit = global i64 0                    ; maximum bytes to cache
@weft_heap_map_flags = global i32 34               ; MAP_PRIVATE | MAP_ANONYMOUS
@weft_heap_free_lists = global [97 x ptr] zeroinitializer
@table = internal global [64 x ptr] zeroinitializer ; free mapped blocks
@hand = internal global i64 0                      ; index of the table entry to evict next

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i64 @llvm.umax.i64(i64, i64)

define internal void @count(ptr %p, i64 %n) {
  %np = getelementptr i8, ptr %p, i64 -32
  store i64 %n, ptr %np
  %l0 = load i64, ptr @weft_heap_live
  %l1 = add i64 %l0, %n
  store i64 %l1, ptr @weft_heap_live
  %k0 = load i64, ptr @weft_heap_peak
  %k1 = call i64 @llvm.umax.i64(i64 %l1, i64 %k0)
  store i64 %k1, ptr @weft_heap_peak
  %a0 = load i64, ptr @weft_heap_allocations
  %a1 = add i64 %a0, 1
  store i64 %a1, ptr @weft_heap_allocations
  %g0 = load i64, ptr @weft_heap_largest
  %g1 = call i64 @llvm.umax.i64(i64 %g0, i64 %n)
  store i64 %g1, ptr @weft_heap_largest
  ret void
}

define internal void @add_cached(i64 %n) {
  %c0 = load i64, ptr @weft_heap_cached
  %c1 = add i64 %c0, %n
  store i64 %c1, ptr @weft_heap_cached
  ret void
}

define internal i1 @may_cache(i64 %n) {
  %c0 = load i64, ptr @weft_heap_cached
  %c1 = add i64 %c0, %n
  %limit = load i64, ptr @weft_heap_limit
  %ok = icmp ule i64 %c1, %limit
  ret i1 %ok
}

define ptr @weft_heap_list_alloc(i64 %class, i64 %size, i64 %n) {
entry:
  %whole = add i64 %size, 64
  br label %try
try:
  %again = phi i1 [ true, %entry ], [ false, %clear ]
  %h = call ptr @aligned_alloc(i64 64, i64 %whole)
  %ok = icmp ne ptr %h, null
  br i1 %ok, label %found, label %none
none:
  br i1 %again, label %clear, label %fail
clear:
  call void @weft_heap_trim()
  br label %try
found:
  %class_at = getelementptr %header, ptr %h, i32 0, i32 2
  store i64 %class, ptr %class_at
  %cp = getelementptr %header, ptr %h, i32 0, i32 3
  store i64 %size, ptr %cp
  %rp = getelementptr %header, ptr %h, i32 0, i32 6
  store i64 0, ptr %rp
  %p = getelementptr i8, ptr %h, i64 64
  call void @count(ptr %p, i64 %n)
  ret ptr %p
fail:
  ret ptr null
}

; Return the smallest cached mapping that is large enough and at most a quarter too large, else a new one.
define ptr @weft_heap_map_alloc(i64 %n) {
entry:
  %quarter = lshr i64 %n, 2
  %most = add i64 %n, %quarter
  br label %scan
scan:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %best = phi i64 [ -1, %entry ], [ %best1, %next ]
  %least = phi i64 [ -1, %entry ], [ %least1, %next ]
  %left = icmp ult i64 %i, 64
  br i1 %left, label %look, label %done
look:
  %s = getelementptr [64 x ptr], ptr @table, i64 0, i64 %i
  %b = load ptr, ptr %s
  %null = icmp eq ptr %b, null
  br i1 %null, label %next, label %size
size:
  %bc = getelementptr i8, ptr %b, i64 -40
  %cap = load i64, ptr %bc
  %big = icmp uge i64 %cap, %n
  %near = icmp ule i64 %cap, %most
  %better = icmp ult i64 %cap, %least
  %t0 = and i1 %big, %near
  %t1 = and i1 %t0, %better
  %b1 = select i1 %t1, i64 %i, i64 %best
  %l1 = select i1 %t1, i64 %cap, i64 %least
  br label %next
next:
  %best1 = phi i64 [ %best, %look ], [ %b1, %size ]
  %least1 = phi i64 [ %least, %look ], [ %l1, %size ]
  %i1 = add i64 %i, 1
  br label %scan
done:
  %found = icmp ne i64 %best, -1
  br i1 %found, label %take, label %fresh
take:
  %ts = getelementptr [64 x ptr], ptr @table, i64 0, i64 %best
  %tb = load ptr, ptr %ts
  store ptr null, ptr %ts
  %minus = sub i64 0, %least
  call void @add_cached(i64 %minus)
  call void @count(ptr %tb, i64 %n)
  ret ptr %tb
fresh:
  %p = call ptr @map(i64 %n)
  %ok = icmp ne ptr %p, null
  br i1 %ok, label %new, label %clear
clear:
  call void @weft_heap_trim()
  %p2 = call ptr @map(i64 %n)
  %ok2 = icmp ne ptr %p2, null
  br i1 %ok2, label %new, label %fail
new:
  %r = phi ptr [ %p, %fresh ], [ %p2, %clear ]
  call void @count(ptr %r, i64 %n)
  ret ptr %r
fail:
  ret ptr null
}

; Map whole pages after one page for the header, with the data at a 2 MiB boundary; unmap the rest.
define internal ptr @map(i64 %n) {
entry:
  %huge = icmp ugt i64 %n, 4611686018427387904
  br i1 %huge, label %fail, label %sized
sized:
  %n0 = add i64 %n, 65535
  %cap = and i64 %n0, -65536
  %length = add i64 %cap, 2162688          ; 2 MiB for alignment, one page (up to 64 KiB) for the header
  %flags = load i32, ptr @weft_heap_map_flags
  %base = call ptr @mmap(ptr null, i64 %length, i32 3, i32 %flags, i32 -1, i64 0)
  %bad = icmp eq ptr %base, inttoptr (i64 -1 to ptr)
  br i1 %bad, label %fail, label %align
align:
  %b = ptrtoint ptr %base to i64
  %d0 = add i64 %b, 2162687
  %d = and i64 %d0, -2097152
  %data = inttoptr i64 %d to ptr
  %keep = sub i64 %d, 65536
  %before = sub i64 %keep, %b
  %end = add i64 %d, %cap
  %all = add i64 %b, %length
  %after = sub i64 %all, %end
  %front = icmp ne i64 %before, 0
  br i1 %front, label %cut, label %back
cut:
  %r0 = call i32 @munmap(ptr %base, i64 %before)
  br label %back
back:
  %tail = icmp ne i64 %after, 0
  br i1 %tail, label %cut2, label %advise
cut2:
  %endp = inttoptr i64 %end to ptr
  %r1 = call i32 @munmap(ptr %endp, i64 %after)
  br label %advise
advise:                                   ; MADV_HUGEPAGE; a kernel without huge pages is only slower
  %r2 = call i32 @madvise(ptr %data, i64 %cap, i32 14)
  %h = getelementptr i8, ptr %data, i64 -64
  %class_at = getelementptr %header, ptr %h, i32 0, i32 2
  store i64 0, ptr %class_at
  %cp = getelementptr %header, ptr %h, i32 0, i32 3
  store i64 %cap, ptr %cp
  ret ptr %data
fail:
  ret ptr null
}

define internal void @unmap(ptr %p) {
  %cp = getelementptr i8, ptr %p, i64 -40
  %cap = load i64, ptr %cp
  %base = getelementptr i8, ptr %p, i64 -65536
  %length = add i64 %cap, 65536
  %r = call i32 @munmap(ptr %base, i64 %length)
  ret void
}

; Cache a mapping; evict older ones until it fits in the limit.
define void @weft_heap_map_free(ptr %p, i64 %cap) {
entry:
  %limit = load i64, ptr @weft_heap_limit
  %never = icmp ugt i64 %cap, %limit
  br i1 %never, label %drop, label %begin
drop:
  call void @unmap(ptr %p)
  ret void
begin:
  br label %look
look:                                     ; two passes over the table: take the first free slot if the limit allows
  %k = phi i64 [ 0, %begin ], [ %k1, %next ]
  %over = icmp uge i64 %k, 128
  br i1 %over, label %drop, label %slot
slot:
  %i = load i64, ptr @hand
  %s = getelementptr [64 x ptr], ptr @table, i64 0, i64 %i
  %b = load ptr, ptr %s
  %empty = icmp eq ptr %b, null
  %room = call i1 @may_cache(i64 %cap)
  %fits = and i1 %empty, %room
  br i1 %fits, label %put, label %other
put:
  store ptr %p, ptr %s
  call void @add_cached(i64 %cap)
  ret void
other:                                    ; if the first pass finds no free slot, the table is full
  %full = icmp uge i64 %k, 64
  %crowded = xor i1 %room, true
  %must = or i1 %full, %crowded
  %has = xor i1 %empty, true
  %evict = and i1 %must, %has
  br i1 %evict, label %out, label %next
out:
  %bc = getelementptr i8, ptr %b, i64 -40
  %bcap = load i64, ptr %bc
  %minus = sub i64 0, %bcap
  store ptr null, ptr %s
  call void @add_cached(i64 %minus)
  call void @unmap(ptr %b)
  %room2 = call i1 @may_cache(i64 %cap)
  br i1 %room2, label %put, label %next
next:
  %h0 = add i64 %i, 1
  %h1 = and i64 %h0, 63
  store i64 %h1, ptr @hand
  %k1 = add i64 %k, 1
  br label %look
}

define void @weft_heap_trim() {
entry:
  br label %maps
maps:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %left = icmp ult i64 %i, 64
  br i1 %left, label %slot, label %lists
slot:
  %s = getelementptr [64 x ptr], ptr @table, i64 0, i64 %i
  %b = load ptr, ptr %s
  %has = icmp ne ptr %b, null
  br i1 %has, label %out, label %next
out:
  store ptr null, ptr %s
  call void @unmap(ptr %b)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %maps
lists:
  %c = phi i64 [ 1, %maps ], [ %c1, %emptied ]
  %more = icmp ult i64 %c, 97
  br i1 %more, label %list, label %end
list:
  %l = getelementptr [97 x ptr], ptr @weft_heap_free_lists, i64 0, i64 %c
  %head = load ptr, ptr %l
  store ptr null, ptr %l
  br label %walk
walk:
  %x = phi ptr [ %head, %list ], [ %xn, %one ]
  %some = icmp ne ptr %x, null
  br i1 %some, label %one, label %emptied
one:
  %xh = getelementptr i8, ptr %x, i64 -64
  %xp = getelementptr %header, ptr %xh, i32 0, i32 5
  %xn = load ptr, ptr %xp
  call void @free(ptr %xh)
  br label %walk
emptied:
  %c1 = add i64 %c, 1
  br label %lists
end:
  store i64 0, ptr @weft_heap_cached
  ret void
}

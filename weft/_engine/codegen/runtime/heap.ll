; The heap of array buffers for native callers (see weft._engine.backends.cpu.buffer). Callers hold the GIL.
;
;   ptr  weft_alloc(i64 nbytes)      64-byte aligned (2 MiB from 1 MiB on), not cleared; null if memory runs out
;   void weft_free(ptr)
;   ptr  weft_new_block(i64 nbytes)  the object in the header of a new block, which owns it; None if memory runs out
;   void weft_block_dealloc(ptr)     destructor of the objects in headers
;   void weft_failed_dealloc(ptr)    destructor of the objects in headers of blocks whose computation failed
;
; A header of 64 bytes precedes each block: the reference count and type of a Python object (`heap.block_type`), so that
; owning a block needs no other memory; the block's class, its capacity, the requested bytes, the next free block (or a
; word that `queue.ll` uses for blocks in use), and the number of references from queued programs.
; Classes 1..64 are multiples of 64 bytes; classes 65..96 divide each octave up to 1 MiB in four. Each has a free list.
; Class 0 blocks are mapped: 64 KiB for the header, then multiples of 64 KiB (whole pages on every machine); a table of
; 64 caches them. LLVM runs no inlining pass, so short hot code is written inline. Rarely used code is in
; `heap_memory.ll`, which is compiled without optimization, in a quarter of the time.

%header = type { i64, ptr, i64, i64, i64, ptr, i64 }

@weft_heap_live = external global i64
@weft_heap_peak = external global i64
@weft_heap_allocations = external global i64
@weft_heap_largest = external global i64
@weft_heap_cached = external global i64
@weft_heap_limit = external global i64             ; maximum bytes to cache
@weft_heap_free_lists = external global [97 x ptr]
@weft_block_type = global ptr null                 ; the class of the objects in headers
@weft_no_block = global ptr null                   ; None

declare ptr @weft_heap_list_alloc(i64, i64, i64)
declare ptr @weft_heap_map_alloc(i64)
declare void @weft_heap_map_free(ptr, i64)
declare void @free(ptr)
declare void @Py_DecRef(ptr)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umax.i64(i64, i64)

define ptr @weft_alloc(i64 %n) {
entry:
  %small = icmp ule i64 %n, 4096
  br i1 %small, label %fine, label %more
more:
  %large = icmp uge i64 %n, 1048576
  br i1 %large, label %map, label %coarse
map:
  %m = call ptr @weft_heap_map_alloc(i64 %n)
  ret ptr %m
fine:
  %f0 = add i64 %n, 63
  %f1 = lshr i64 %f0, 6
  %f2 = call i64 @llvm.umax.i64(i64 %f1, i64 1)
  %fs = shl i64 %f2, 6
  br label %find
coarse:                                   ; four classes per octave: keep the three highest bits, rounded up
  %x = sub i64 %n, 1
  %lz = call i64 @llvm.ctlz.i64(i64 %x, i1 true)
  %log = sub i64 63, %lz
  %sh = sub i64 %log, 2
  %q = lshr i64 %x, %sh
  %q1 = add i64 %q, 1
  %cs = shl i64 %q1, %sh
  %o0 = sub i64 %log, 12
  %o = shl i64 %o0, 2
  %step = and i64 %q, 3
  %c0 = add i64 %o, %step
  %c1 = add i64 %c0, 65
  br label %find
find:
  %class = phi i64 [ %f2, %fine ], [ %c1, %coarse ]
  %size = phi i64 [ %fs, %fine ], [ %cs, %coarse ]
  %list = getelementptr [97 x ptr], ptr @weft_heap_free_lists, i64 0, i64 %class
  %head = load ptr, ptr %list
  %some = icmp ne ptr %head, null
  br i1 %some, label %pop, label %make
pop:
  %next_at = getelementptr i8, ptr %head, i64 -24
  %next = load ptr, ptr %next_at
  store ptr %next, ptr %list
  %cached = load i64, ptr @weft_heap_cached
  %fewer = sub i64 %cached, %size
  store i64 %fewer, ptr @weft_heap_cached
  %bytes_at = getelementptr i8, ptr %head, i64 -32
  store i64 %n, ptr %bytes_at
  %a0 = load i64, ptr @weft_heap_allocations
  %a1 = add i64 %a0, 1
  store i64 %a1, ptr @weft_heap_allocations
  %g0 = load i64, ptr @weft_heap_largest
  %g1 = call i64 @llvm.umax.i64(i64 %g0, i64 %n)
  store i64 %g1, ptr @weft_heap_largest
  %l0 = load i64, ptr @weft_heap_live
  %l1 = add i64 %l0, %n
  store i64 %l1, ptr @weft_heap_live
  %k0 = load i64, ptr @weft_heap_peak
  %peak = icmp ugt i64 %l1, %k0
  br i1 %peak, label %higher, label %popped
higher:
  store i64 %l1, ptr @weft_heap_peak
  br label %popped
popped:
  ret ptr %head
make:
  %p = call ptr @weft_heap_list_alloc(i64 %class, i64 %size, i64 %n)
  ret ptr %p
}

define void @weft_free(ptr %p) {
entry:
  %h = getelementptr i8, ptr %p, i64 -64
  %class_at = getelementptr %header, ptr %h, i32 0, i32 2
  %class = load i64, ptr %class_at
  %cp = getelementptr %header, ptr %h, i32 0, i32 3
  %cap = load i64, ptr %cp
  %np = getelementptr %header, ptr %h, i32 0, i32 4
  %n = load i64, ptr %np
  %l0 = load i64, ptr @weft_heap_live
  %l1 = sub i64 %l0, %n
  store i64 %l1, ptr @weft_heap_live
  %mapped = icmp eq i64 %class, 0
  br i1 %mapped, label %map, label %listed
listed:
  %c0 = load i64, ptr @weft_heap_cached
  %c1 = add i64 %c0, %cap
  %limit = load i64, ptr @weft_heap_limit
  %room = icmp ule i64 %c1, %limit
  br i1 %room, label %push, label %drop
push:
  store i64 %c1, ptr @weft_heap_cached
  %list = getelementptr [97 x ptr], ptr @weft_heap_free_lists, i64 0, i64 %class
  %head = load ptr, ptr %list
  %xp = getelementptr %header, ptr %h, i32 0, i32 5
  store ptr %head, ptr %xp
  store ptr %p, ptr %list
  ret void
drop:
  call void @free(ptr %h)
  ret void
map:
  call void @weft_heap_map_free(ptr %p, i64 %cap)
  ret void
}

define ptr @weft_new_block(i64 %n) {
entry:
  %block = call ptr @weft_alloc(i64 %n)
  %ok = icmp ne ptr %block, null
  br i1 %ok, label %own, label %fail
own:
  %object = getelementptr i8, ptr %block, i64 -64
  store i64 1, ptr %object
  %type_at = getelementptr i8, ptr %block, i64 -56
  %type = load ptr, ptr @weft_block_type
  store ptr %type, ptr %type_at
  ret ptr %object
fail:                                     ; add a reference to None; the sign of the count tells if it is immortal
  %none = load ptr, ptr @weft_no_block
  %count = load i32, ptr %none
  %more = add i32 %count, 1
  %immortal = icmp slt i32 %count, 0
  %kept = select i1 %immortal, i32 %count, i32 %more
  store i32 %kept, ptr %none
  ret ptr %none
}

define void @weft_block_dealloc(ptr %object) {
  %block = getelementptr i8, ptr %object, i64 64
  call void @weft_free(ptr %block)
  ret void
}

define void @weft_failed_dealloc(ptr %object) {
  %why_at = getelementptr i8, ptr %object, i64 40
  %why = load ptr, ptr %why_at
  %block = getelementptr i8, ptr %object, i64 64
  call void @weft_free(ptr %block)
  call void @Py_DecRef(ptr %why)
  ret void
}

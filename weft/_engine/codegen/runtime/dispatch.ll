; Native call of a compiled function: match the arguments, find memory, run, build the result. Callers hold the GIL.
;
; `weft_call(self, args, nargs, kwnames)` has the signature of a METH_FASTCALL|METH_KEYWORDS method. The object's `_cell` slot is
; an int, the address of the head of a list of entries; its `_slow` slot is the callable for all other cases: it takes the object,
; then the arguments.
; $BUFFER, $OWNER, $CELL, $SLOW are byte offsets of slots, checked at startup by `dispatch.py`. `trees.ll`, which matches
; arguments and builds results, is part of this module.
;
; A tree is a program of i64 words: 0 array | 1 n tuple | 2 n list | 3 n model keys... dict; for a result, the model is a dict
; with the same keys | 4 None | 5 float as f32 | 6 float as f64 | 7 int as i32 | 8 int as i64 | 9 object: this very object (static
; arguments) | 10 bool | 11 NumPy array: class, dtype, bytes to copy, conversion (0 none, 1 f64 to f32, 2 i64 to i32), rank, shape |
; 12 NumPy scalar: class, conversion. The items of a container follow its words.
; Keyword arguments follow the positional ones, sorted by name; word 19 has the position of each in the call.
%entry = type { ptr,       ;  0 next
                i64,       ;  1 positional arguments
                ptr,       ;  2 program of the argument tree
                ptr,       ;  3 specs of its leaves
                ptr,       ;  4 i32 run(ptr slots)
                i64, ptr,  ;  5 number and addresses of leading constants
                i64,       ;  7 leaves of the arguments
                i64,       ;  8 results
                ptr, ptr,  ;  9 specs and bytes of the results
                ptr,       ; 11 program of the result tree
                i64, ptr,  ; 12 number and addresses of trailing constants
                i64,       ; 14 bytes of temporary memory
                i64,       ; 15 epoch of the entry's validity
                i64,       ; 16 1: release the GIL during the run; 2: queue the program; 4: queue it if its arguments are pending;
                           ;    8: it calls Python: queue it behind other programs that do
                ptr,       ; 17 callable that raises the error of `run`; it keeps everything that the entry needs alive
                i64,       ; 18 keyword arguments
                ptr, ptr,  ; 19 position in the call of each keyword argument; names in the order of the call
                ptr,       ; 21 per result: the donated leaf whose memory it takes, or -1
                i64, ptr,  ; 22 number and leaves of donated arrays
                i64 }      ; 24 bytes of the results that need new memory
; The state of a walk over a tree: word of the program, leaf number; specs, addresses, owners and arrays of the leaves, memory for
; their numbers; nonzero if some leaves are not computed yet; a list of (leaf, words) of NumPy arrays, and its length.
%cursor = type { ptr, i64, ptr, ptr, ptr, ptr, ptr, i64, ptr, i64 }

@ARRAY_T = external global i8
@BUFFER_T = external global i8
@BLOCK_T = external global i8
@PyBool_Type = external global i8
@PyFloat_Type = external global i8
@PyLong_Type = external global i8
@_Py_TrueStruct = external global i8
@PyDict_Type = external global i8
@PyList_Type = external global i8
@PyTuple_Type = external global i8
@_Py_NoneStruct = external global i8
@STATE = external global [2 x i64]       ; number of contexts that require the slow path; epoch

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyLong_AsVoidPtr(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare ptr @PyDict_GetItem(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare ptr @PyList_New(i64)
declare ptr @PyTuple_New(i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @weft_alloc(i64)
declare void @weft_free(ptr)
declare ptr @memcpy(ptr, ptr, i64)

define internal void @count_refs(ptr %owners, i64 %n, i1 %up) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %at = getelementptr ptr, ptr %owners, i64 %i
  %x = load ptr, ptr %at
  br i1 %up, label %inc, label %dec
inc:
  call void @Py_IncRef(ptr %x)
  br label %next
dec:
  call void @Py_DecRef(ptr %x)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

; free the blocks of the first `n` results, except blocks that donated arrays still own
define internal void @free_blocks(ptr %blocks, ptr %out_owners, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %owner_at = getelementptr ptr, ptr %out_owners, i64 %i
  %owner = load ptr, ptr %owner_at
  %own = icmp eq ptr %owner, null
  br i1 %own, label %release, label %next
release:
  %at = getelementptr ptr, ptr %blocks, i64 %i
  %x = load ptr, ptr %at
  call void @weft_free(ptr %x)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

define internal void @copy_ptrs(ptr %to, ptr %from, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %a = getelementptr ptr, ptr %from, i64 %i
  %x = load ptr, ptr %a
  %b = getelementptr ptr, ptr %to, i64 %i
  store ptr %x, ptr %b
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

; release the memory of donated arrays after a successful call
define internal void @give_up(ptr %e, ptr %owners, ptr %arrays) {
entry:
  %n_at = getelementptr %entry, ptr %e, i32 0, i32 22
  %n = load i64, ptr %n_at
  %list_at = getelementptr %entry, ptr %e, i32 0, i32 23
  %list = load ptr, ptr %list_at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %leaf_at = getelementptr i64, ptr %list, i64 %i
  %leaf = load i64, ptr %leaf_at
  %array_at = getelementptr ptr, ptr %arrays, i64 %leaf
  %array = load ptr, ptr %array_at
  %own_at = getelementptr ptr, ptr %owners, i64 %leaf
  %own = load ptr, ptr %own_at
  %slot = getelementptr i8, ptr %array, i64 $BUFFER
  %now = load ptr, ptr %slot
  %still = icmp eq ptr %now, %own
  br i1 %still, label %drop, label %next
drop:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  store ptr @_Py_NoneStruct, ptr %slot
  call void @Py_DecRef(ptr %own)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

; Return whether no other object holds the memory that results will take over, such as another array or a view, which must keep
; its values. Each leaf's owner is counted once more here, so a donated owner has exactly two references, its array's and this
; call's, besides references of queued programs. Return 2 if there are such references, so that this program must be queued.
; A `queued` program takes over blocks only.
define internal i32 @exclusive(ptr %e, ptr %owners, i1 %queued) {
entry:
  %donated_at = getelementptr %entry, ptr %e, i32 0, i32 22
  %donated = load i64, ptr %donated_at
  %none = icmp eq i64 %donated, 0
  br i1 %none, label %yes, label %some
some:
  call void @weft_queue_reap()
  %leaves_at = getelementptr %entry, ptr %e, i32 0, i32 7
  %leaves = load i64, ptr %leaves_at
  %n_at = getelementptr %entry, ptr %e, i32 0, i32 8
  %n = load i64, ptr %n_at
  %list_at = getelementptr %entry, ptr %e, i32 0, i32 21
  %list = load ptr, ptr %list_at
  call void @count_refs(ptr %owners, i64 %leaves, i1 1)
  br label %loop
loop:
  %i = phi i64 [ 0, %some ], [ %i1, %next ]
  %behind = phi i64 [ 0, %some ], [ %behind_1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %leaf_at = getelementptr i64, ptr %list, i64 %i
  %leaf = load i64, ptr %leaf_at
  %aliased = icmp sge i64 %leaf, 0
  br i1 %aliased, label %held, label %next
held:
  %own_at = getelementptr ptr, ptr %owners, i64 %leaf
  %own = load ptr, ptr %own_at
  %refs = load i32, ptr %own                  ; the count is the low half of the first word in all versions of Python
  %type_at = getelementptr i8, ptr %own, i64 8
  %type = load ptr, ptr %type_at
  %is_block = icmp eq ptr %type, @BLOCK_T
  %is_pending = icmp eq ptr %type, @PENDING_T
  %owns_itself = or i1 %is_block, %is_pending
  br i1 %owns_itself, label %block, label %borrowed
block:
  %readers_at = getelementptr i8, ptr %own, i64 48
  %readers = load i64, ptr %readers_at
  %readers_32 = trunc i64 %readers to i32
  %others = sub i32 %refs, %readers_32
  %two = icmp eq i32 %others, 2
  br i1 %two, label %next, label %out
borrowed:
  %two_refs = icmp eq i32 %refs, 2
  br i1 %two_refs, label %lent, label %out
lent:
  %lender_at = getelementptr i8, ptr %own, i64 $OWNER
  %lender = load ptr, ptr %lender_at
  %no_lender = icmp eq ptr %lender, @_Py_NoneStruct
  %foreign = and i1 %no_lender, %queued
  br i1 %foreign, label %out, label %lender_known
lender_known:
  br i1 %no_lender, label %next, label %lender_kind
lender_kind:
  %lender_type_at = getelementptr i8, ptr %lender, i64 8
  %lender_type = load ptr, ptr %lender_type_at
  %lent_by_block = icmp eq ptr %lender_type, @BLOCK_T
  %lender_refs = load i32, ptr %lender
  %lent_once = icmp eq i32 %lender_refs, 1                 ; a queued program may have a second reference
  %lent_to_one = and i1 %lent_by_block, %lent_once
  br i1 %lent_to_one, label %next, label %out
next:
  %more_readers = phi i64 [ 0, %one ], [ %readers, %block ], [ 0, %lender_known ], [ 0, %lender_kind ]
  %behind_1 = or i64 %behind, %more_readers
  %i1 = add i64 %i, 1
  br label %loop
out:
  %ok = phi i1 [ 1, %loop ], [ 0, %block ], [ 0, %borrowed ], [ 0, %lent ], [ 0, %lender_kind ]
  call void @count_refs(ptr %owners, i64 %leaves, i1 0)
  %free = icmp eq i64 %behind, 0
  %how = select i1 %free, i32 1, i32 2
  %answer = select i1 %ok, i32 %how, i32 0
  ret i32 %answer
yes:
  ret i32 1
}

; Run a matched entry, or queue it. Return null with an exception set if it fails, and `%self` (borrowed) if memory runs out or is shared: the slow path handles these cases.
define internal ptr @run(ptr %e, ptr %slots, ptr %owners, ptr %arrays, ptr %out_owners, ptr %self, i1 %queued,
                         ptr %numbers) {
entry:
  %c = alloca %cursor
  %value = alloca ptr
  %raise_at = getelementptr %entry, ptr %e, i32 0, i32 17
  %raise = load ptr, ptr %raise_at
  %pre_at = getelementptr %entry, ptr %e, i32 0, i32 5
  %pre = load i64, ptr %pre_at
  %pre_from_at = getelementptr %entry, ptr %e, i32 0, i32 6
  %pre_from = load ptr, ptr %pre_from_at
  call void @copy_ptrs(ptr %slots, ptr %pre_from, i64 %pre)
  %leaves_at = getelementptr %entry, ptr %e, i32 0, i32 7
  %leaves = load i64, ptr %leaves_at
  %n_at = getelementptr %entry, ptr %e, i32 0, i32 8
  %n = load i64, ptr %n_at
  %sizes_at = getelementptr %entry, ptr %e, i32 0, i32 10
  %sizes = load ptr, ptr %sizes_at
  %first_out = add i64 %pre, %leaves
  %outs = getelementptr ptr, ptr %slots, i64 %first_out
  %alias_list_at = getelementptr %entry, ptr %e, i32 0, i32 21
  %alias_list = load ptr, ptr %alias_list_at
  br label %alloc
alloc:
  %j = phi i64 [ 0, %entry ], [ %j1, %alloc_ok ]
  %j_more = icmp ult i64 %j, %n
  br i1 %j_more, label %alloc_which, label %constants
alloc_which:
  %alias_at = getelementptr i64, ptr %alias_list, i64 %j
  %alias = load i64, ptr %alias_at
  %out_owner_at = getelementptr ptr, ptr %out_owners, i64 %j
  store ptr null, ptr %out_owner_at
  %aliased = icmp sge i64 %alias, 0
  br i1 %aliased, label %alloc_shared, label %alloc_one
alloc_shared:
  %alias_slot = add i64 %pre, %alias
  %donor_at = getelementptr ptr, ptr %slots, i64 %alias_slot
  %donor = load ptr, ptr %donor_at
  %donor_owner_at = getelementptr ptr, ptr %owners, i64 %alias
  %donor_owner = load ptr, ptr %donor_owner_at
  store ptr %donor_owner, ptr %out_owner_at
  br label %alloc_ok
alloc_one:
  %size_at = getelementptr i64, ptr %sizes, i64 %j
  %size = load i64, ptr %size_at
  %block = call ptr @weft_alloc(i64 %size)
  %no_block = icmp eq ptr %block, null
  br i1 %no_block, label %no_memory, label %alloc_ok
alloc_ok:
  %out_block = phi ptr [ %block, %alloc_one ], [ %donor, %alloc_shared ]
  %out_at = getelementptr ptr, ptr %outs, i64 %j
  store ptr %out_block, ptr %out_at
  %j1 = add i64 %j, 1
  br label %alloc
no_memory:
  call void @free_blocks(ptr %outs, ptr %out_owners, i64 %j)
  ret ptr %self
constants:
  %post_at = getelementptr %entry, ptr %e, i32 0, i32 12
  %post = load i64, ptr %post_at
  %post_from_at = getelementptr %entry, ptr %e, i32 0, i32 13
  %post_from = load ptr, ptr %post_from_at
  %consts = getelementptr ptr, ptr %outs, i64 %n
  call void @copy_ptrs(ptr %consts, ptr %post_from, i64 %post)
  %arena_at = getelementptr ptr, ptr %consts, i64 %post
  %arena_bytes_at = getelementptr %entry, ptr %e, i32 0, i32 14
  %arena_bytes = load i64, ptr %arena_bytes_at
  %has_arena = icmp ne i64 %arena_bytes, 0
  br i1 %queued, label %queue, label %at_once
queue:
  %posted = call i1 @post(ptr %e, ptr %slots, ptr %owners, ptr %out_owners, ptr %numbers)
  br i1 %posted, label %result, label %give_back
give_back:
  ret ptr %self
at_once:
  br i1 %has_arena, label %arena_alloc, label %go
arena_alloc:
  %arena_block = call ptr @weft_alloc(i64 %arena_bytes)
  %no_arena = icmp eq ptr %arena_block, null
  br i1 %no_arena, label %no_arena_memory, label %go
no_arena_memory:
  call void @free_blocks(ptr %outs, ptr %out_owners, i64 %n)
  ret ptr %self
go:
  %arena = phi ptr [ null, %at_once ], [ %arena_block, %arena_alloc ]
  store ptr %arena, ptr %arena_at
  %fn_at = getelementptr %entry, ptr %e, i32 0, i32 4
  %fn = load ptr, ptr %fn_at
  %release_at = getelementptr %entry, ptr %e, i32 0, i32 16
  %release = load i64, ptr %release_at
  %kind = and i64 %release, 1
  %long = icmp ne i64 %kind, 0
  call void @Py_IncRef(ptr %raise)                ; another thread may drop the entry meanwhile
  br i1 %long, label %without_gil, label %with_gil
with_gil:
  %rc0 = call i32 %fn(ptr %slots)
  br label %ran
without_gil:
  call void @count_refs(ptr %owners, i64 %leaves, i1 1)
  %thread = call ptr @PyEval_SaveThread()
  %rc1 = call i32 %fn(ptr %slots)
  call void @PyEval_RestoreThread(ptr %thread)
  call void @count_refs(ptr %owners, i64 %leaves, i1 0)
  br label %ran
ran:
  %rc = phi i32 [ %rc0, %with_gil ], [ %rc1, %without_gil ]
  br i1 %has_arena, label %arena_free, label %check
arena_free:
  call void @weft_free(ptr %arena)
  br label %check
check:
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %failed, label %result
failed:                                          ; donated memory may contain a partial result
  call void @free_blocks(ptr %outs, ptr %out_owners, i64 %n)
  call void @give_up(ptr %e, ptr %owners, ptr %arrays)
  %null = call ptr @PyObject_CallNoArgs(ptr %raise)
  call void @Py_DecRef(ptr %raise)
  ret ptr null
result:
  %tree_at = getelementptr %entry, ptr %e, i32 0, i32 11
  %tree = load ptr, ptr %tree_at
  store ptr %tree, ptr %c
  %out_specs_at = getelementptr %entry, ptr %e, i32 0, i32 9
  %out_specs = load ptr, ptr %out_specs_at
  %c1 = getelementptr %cursor, ptr %c, i32 0, i32 1
  store i64 0, ptr %c1
  %c2 = getelementptr %cursor, ptr %c, i32 0, i32 2
  store ptr %out_specs, ptr %c2
  %c3 = getelementptr %cursor, ptr %c, i32 0, i32 3
  store ptr %outs, ptr %c3
  %c4 = getelementptr %cursor, ptr %c, i32 0, i32 4
  store ptr %out_owners, ptr %c4
  store ptr null, ptr %value
  %built = call i1 @build(ptr %value, i64 1, ptr %c)
  call void @give_up(ptr %e, ptr %owners, ptr %arrays)
  %tree_built = load ptr, ptr %value
  br i1 %built, label %done, label %unbuilt
done:
  br i1 %queued, label %built_queued, label %built_now
built_queued:                                    ; queued programs have references of their own
  call void @count_refs(ptr %out_owners, i64 %n, i1 0)
  ret ptr %tree_built
built_now:
  call void @Py_DecRef(ptr %raise)
  ret ptr %tree_built
unbuilt:                                         ; out of memory for objects
  br i1 %queued, label %unbuilt_queued, label %unbuilt_now
unbuilt_queued:
  call void @count_refs(ptr %out_owners, i64 %n, i1 0)
  call void @Py_DecRef(ptr %tree_built)
  ret ptr null
unbuilt_now:
  %k = load i64, ptr %c1
  %rest = sub i64 %n, %k
  %rest_blocks = getelementptr ptr, ptr %outs, i64 %k
  %rest_owners = getelementptr ptr, ptr %out_owners, i64 %k
  call void @free_blocks(ptr %rest_blocks, ptr %rest_owners, i64 %rest)
  call void @Py_DecRef(ptr %tree_built)           ; may be null
  call void @Py_DecRef(ptr %raise)
  ret ptr null
}

; Queue a matched entry. Its results are blocks, each counted once for the caller. Return false if the queue is full or memory runs out.
define internal i1 @post(ptr %e, ptr %slots, ptr %owners, ptr %out_owners, ptr %numbers) noinline {
entry:
  %pre_at = getelementptr %entry, ptr %e, i32 0, i32 5
  %pre = load i64, ptr %pre_at
  %leaves_at = getelementptr %entry, ptr %e, i32 0, i32 7
  %leaves = load i64, ptr %leaves_at
  %n_at = getelementptr %entry, ptr %e, i32 0, i32 8
  %n = load i64, ptr %n_at
  %post_at = getelementptr %entry, ptr %e, i32 0, i32 12
  %post = load i64, ptr %post_at
  %first_out = add i64 %pre, %leaves
  %outs = getelementptr ptr, ptr %slots, i64 %first_out
  %s2 = add i64 %first_out, %n
  %s3 = add i64 %s2, %post
  %n_slots = add i64 %s3, 1
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %submit
one:
  %owner_at = getelementptr ptr, ptr %out_owners, i64 %i
  %owner = load ptr, ptr %owner_at
  %fresh = icmp eq ptr %owner, null
  br i1 %fresh, label %make, label %share
make:
  %block_at = getelementptr ptr, ptr %outs, i64 %i
  %block = load ptr, ptr %block_at
  %object = getelementptr i8, ptr %block, i64 -64
  store i64 1, ptr %object
  %object_type = getelementptr i8, ptr %block, i64 -56
  store ptr @BLOCK_T, ptr %object_type
  br label %next
share:
  %type_at = getelementptr i8, ptr %owner, i64 8
  %type = load ptr, ptr %type_at
  %is_buffer = icmp eq ptr %type, @BUFFER_T
  br i1 %is_buffer, label %unwrap, label %refer
unwrap:                                          ; take the block of a buffer whose array gives it up
  %lender_at = getelementptr i8, ptr %owner, i64 $OWNER
  %lender = load ptr, ptr %lender_at
  br label %refer
refer:
  %donor = phi ptr [ %owner, %share ], [ %lender, %unwrap ]
  call void @Py_IncRef(ptr %donor)
  br label %next
next:
  %held = phi ptr [ %object, %make ], [ %donor, %refer ]
  store ptr %held, ptr %owner_at
  %i1 = add i64 %i, 1
  br label %loop
submit:
  %fn_at = getelementptr %entry, ptr %e, i32 0, i32 4
  %fn = load ptr, ptr %fn_at
  %arena_at = getelementptr %entry, ptr %e, i32 0, i32 14
  %arena = load i64, ptr %arena_at
  %kind_at = getelementptr %entry, ptr %e, i32 0, i32 16
  %kind = load i64, ptr %kind_at
  %python = and i64 %kind, 8
  %raise_at = getelementptr %entry, ptr %e, i32 0, i32 17
  %raise = load ptr, ptr %raise_at
  %bytes_at = getelementptr %entry, ptr %e, i32 0, i32 24
  %bytes = load i64, ptr %bytes_at
  %some = add i64 %leaves, 1
  %refused = call i32 @weft_queue_post(ptr %fn, i64 %n_slots, ptr %slots, i64 %leaves, ptr %owners, i64 %n, ptr %out_owners, i64 %arena,
                                       ptr %raise, i64 %bytes, ptr %numbers, i64 %some, i64 %python)
  %ok = icmp eq i32 %refused, 0
  br i1 %ok, label %yes, label %no
yes:
  ret i1 1
no:
  call void @count_refs(ptr %out_owners, i64 %n, i1 0)
  ret i1 0
}

; Copy NumPy arrays to blocks that the call owns, each counted once. Return the number of copies: fewer if memory runs out.
define internal i64 @copy_numpy(ptr %listed, i64 %n, ptr %slots, ptr %owners) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %i_twice = mul i64 %i, 2
  %leaf_at = getelementptr i64, ptr %listed, i64 %i_twice
  %leaf = load i64, ptr %leaf_at
  %words_at = getelementptr i64, ptr %leaf_at, i64 1
  %words = load ptr, ptr %words_at
  %bytes_at = getelementptr i64, ptr %words, i64 2
  %bytes = load i64, ptr %bytes_at
  %how_at = getelementptr i64, ptr %words, i64 3
  %how = load i64, ptr %how_at
  %slot = getelementptr ptr, ptr %slots, i64 %leaf
  %data = load ptr, ptr %slot
  %block = call ptr @weft_alloc(i64 %bytes)
  %no_block = icmp eq ptr %block, null
  br i1 %no_block, label %out, label %made
made:
  %object = getelementptr i8, ptr %block, i64 -64
  store i64 1, ptr %object
  %object_type = getelementptr i8, ptr %block, i64 -56
  store ptr @BLOCK_T, ptr %object_type
  store ptr %block, ptr %slot
  %owner_at = getelementptr ptr, ptr %owners, i64 %leaf
  store ptr %object, ptr %owner_at
  %count = lshr i64 %bytes, 2
  %whole = and i64 %count, -8
  switch i64 %how, label %same [ i64 1, label %floats  i64 2, label %ints ]
same:
  %same_copied = call ptr @memcpy(ptr %block, ptr %data, i64 %bytes)
  br label %next
floats:
  %f = phi i64 [ 0, %made ], [ %f8, %floats_8 ]
  %f_more = icmp ult i64 %f, %whole
  br i1 %f_more, label %floats_8, label %float_rest
floats_8:
  %f_from = getelementptr double, ptr %data, i64 %f
  %f_wide = load <8 x double>, ptr %f_from, align 8
  %f_narrow = fptrunc <8 x double> %f_wide to <8 x float>
  %f_to = getelementptr float, ptr %block, i64 %f
  store <8 x float> %f_narrow, ptr %f_to, align 4
  %f8 = add i64 %f, 8
  br label %floats
float_rest:
  %fr = phi i64 [ %f, %floats ], [ %fr1, %float_1 ]
  %fr_more = icmp ult i64 %fr, %count
  br i1 %fr_more, label %float_1, label %next
float_1:
  %fr_from = getelementptr double, ptr %data, i64 %fr
  %fr_wide = load double, ptr %fr_from
  %fr_narrow = fptrunc double %fr_wide to float
  %fr_to = getelementptr float, ptr %block, i64 %fr
  store float %fr_narrow, ptr %fr_to
  %fr1 = add i64 %fr, 1
  br label %float_rest
ints:
  %n8 = phi i64 [ 0, %made ], [ %n8_next, %ints_8 ]
  %n_more = icmp ult i64 %n8, %whole
  br i1 %n_more, label %ints_8, label %int_rest
ints_8:
  %n_from = getelementptr i64, ptr %data, i64 %n8
  %n_wide = load <8 x i64>, ptr %n_from, align 8
  %n_narrow = trunc <8 x i64> %n_wide to <8 x i32>
  %n_to = getelementptr i32, ptr %block, i64 %n8
  store <8 x i32> %n_narrow, ptr %n_to, align 4
  %n8_next = add i64 %n8, 8
  br label %ints
int_rest:
  %nr = phi i64 [ %n8, %ints ], [ %nr1, %int_1 ]
  %nr_more = icmp ult i64 %nr, %count
  br i1 %nr_more, label %int_1, label %next
int_1:
  %nr_from = getelementptr i64, ptr %data, i64 %nr
  %nr_wide = load i64, ptr %nr_from
  %nr_narrow = trunc i64 %nr_wide to i32
  %nr_to = getelementptr i32, ptr %block, i64 %nr
  store i32 %nr_narrow, ptr %nr_to
  %nr1 = add i64 %nr, 1
  br label %int_rest
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret i64 %i
}

; release a call's copies of NumPy arrays; a queued program has its own references
define internal void @drop_copies(ptr %listed, i64 %n, ptr %owners) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %out
one:
  %i_twice = mul i64 %i, 2
  %leaf_at = getelementptr i64, ptr %listed, i64 %i_twice
  %leaf = load i64, ptr %leaf_at
  %owner_at = getelementptr ptr, ptr %owners, i64 %leaf
  %owner = load ptr, ptr %owner_at
  call void @Py_DecRef(ptr %owner)
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

; match the arguments and run; return `%e` itself if they do not match
define internal ptr @try(ptr %e, ptr %args, i64 %nargs, ptr %self) noinline {
entry:
  %pre_at = getelementptr %entry, ptr %e, i32 0, i32 5
  %pre = load i64, ptr %pre_at
  %leaves_at = getelementptr %entry, ptr %e, i32 0, i32 7
  %leaves = load i64, ptr %leaves_at
  %outs_at = getelementptr %entry, ptr %e, i32 0, i32 8
  %outs = load i64, ptr %outs_at
  %post_at = getelementptr %entry, ptr %e, i32 0, i32 12
  %post = load i64, ptr %post_at
  %s1 = add i64 %pre, %leaves
  %s2 = add i64 %s1, %outs
  %s3 = add i64 %s2, %post
  %n_slots = add i64 %s3, 1
  %slots = alloca ptr, i64 %n_slots
  %some = add i64 %leaves, 1
  %owners = alloca ptr, i64 %some
  %arrays = alloca ptr, i64 %some
  %numbers = alloca i64, i64 %some
  %listed_words = mul i64 %some, 2
  %listed = alloca i64, i64 %listed_words
  %outs_1 = add i64 %outs, 1
  %out_owners = alloca ptr, i64 %outs_1
  %c = alloca %cursor
  %prog_at = getelementptr %entry, ptr %e, i32 0, i32 2
  %prog = load ptr, ptr %prog_at
  store ptr %prog, ptr %c
  %c1 = getelementptr %cursor, ptr %c, i32 0, i32 1
  store i64 0, ptr %c1
  %specs_at = getelementptr %entry, ptr %e, i32 0, i32 3
  %specs = load ptr, ptr %specs_at
  %c2 = getelementptr %cursor, ptr %c, i32 0, i32 2
  store ptr %specs, ptr %c2
  %first = getelementptr ptr, ptr %slots, i64 %pre
  %c3 = getelementptr %cursor, ptr %c, i32 0, i32 3
  store ptr %first, ptr %c3
  %c4 = getelementptr %cursor, ptr %c, i32 0, i32 4
  store ptr %owners, ptr %c4
  %c5 = getelementptr %cursor, ptr %c, i32 0, i32 5
  store ptr %arrays, ptr %c5
  %c6 = getelementptr %cursor, ptr %c, i32 0, i32 6
  store ptr %numbers, ptr %c6
  %c7 = getelementptr %cursor, ptr %c, i32 0, i32 7
  store i64 0, ptr %c7
  %c8 = getelementptr %cursor, ptr %c, i32 0, i32 8
  store ptr %listed, ptr %c8
  %c9 = getelementptr %cursor, ptr %c, i32 0, i32 9
  store i64 0, ptr %c9
  %positional = call i1 @match(ptr %args, i64 %nargs, ptr %c)
  br i1 %positional, label %keywords, label %miss
keywords:
  %kw_at = getelementptr %entry, ptr %e, i32 0, i32 18
  %kw = load i64, ptr %kw_at
  %places_at = getelementptr %entry, ptr %e, i32 0, i32 19
  %places = load ptr, ptr %places_at
  %named = getelementptr ptr, ptr %args, i64 %nargs
  br label %loop
loop:
  %i = phi i64 [ 0, %keywords ], [ %i1, %next ]
  %more = icmp ult i64 %i, %kw
  br i1 %more, label %one, label %matched
one:
  %place_at = getelementptr i64, ptr %places, i64 %i
  %place = load i64, ptr %place_at
  %x_at = getelementptr ptr, ptr %named, i64 %place
  %ok = call i1 @match(ptr %x_at, i64 1, ptr %c)
  br i1 %ok, label %next, label %miss
next:
  %i1 = add i64 %i, 1
  br label %loop
matched:
  %of_numpy = load i64, ptr %c9
  %all_ours = icmp eq i64 %of_numpy, 0
  br i1 %all_ours, label %ready, label %copy
copy:
  %copied = call i64 @copy_numpy(ptr %listed, i64 %of_numpy, ptr %first, ptr %owners)
  %enough = icmp eq i64 %copied, %of_numpy
  br i1 %enough, label %ready, label %drop
ready:
  %pending = load i64, ptr %c7
  %kind_at = getelementptr %entry, ptr %e, i32 0, i32 16
  %kind = load i64, ptr %kind_at
  %more_than_run = and i64 %kind, 10
  %unusual = or i64 %more_than_run, %pending
  %usual = icmp eq i64 %unusual, 0
  br i1 %usual, label %memory, label %when
when:                                            ; calls from within a queued program run at once
  %mine = call i32 @weft_queue_is_mine()
  %nested = icmp ne i32 %mine, 0
  %before = load i64, ptr @weft_queue_effects
  %done = load atomic i64, ptr @weft_queue_done acquire, align 8
  %effects = icmp ugt i64 %before, %done
  %python = and i64 %kind, 8
  %calls_python = icmp ne i64 %python, 0
  %in_order = and i1 %effects, %calls_python
  %always = and i64 %kind, 2
  %long = icmp ne i64 %always, 0
  %waits = icmp ne i64 %pending, 0
  %later = or i1 %in_order, %long
  %reason = or i1 %later, %waits
  %not_nested = xor i1 %nested, 1
  %allowed_bit = and i64 %kind, 4
  %allowed = icmp ne i64 %allowed_bit, 0
  %may = and i1 %allowed, %not_nested
  %wanted = and i1 %reason, %may
  %must = or i1 %waits, %in_order
  %must_not = xor i1 %wanted, 1
  %impossible = and i1 %must, %must_not
  br i1 %impossible, label %shared, label %memory
memory:
  %to_queue = phi i1 [ 0, %ready ], [ %wanted, %when ]
  %own = call i32 @exclusive(ptr %e, ptr %owners, i1 %to_queue)
  switch i32 %own, label %start [ i32 0, label %shared  i32 2, label %behind ]
behind:                                          ; queued programs still read the memory that this one would write
  br i1 %to_queue, label %start, label %shared
shared:
  br i1 %all_ours, label %out, label %drop
start:
  %value = call ptr @run(ptr %e, ptr %slots, ptr %owners, ptr %arrays, ptr %out_owners, ptr %self, i1 %to_queue, ptr %numbers)
  br i1 %all_ours, label %out, label %drop
drop:
  %to_drop = phi i64 [ %copied, %copy ], [ %of_numpy, %shared ], [ %of_numpy, %start ]
  %kept = phi ptr [ %self, %copy ], [ %self, %shared ], [ %value, %start ]
  call void @drop_copies(ptr %listed, i64 %to_drop, ptr %owners)
  br label %out
out:
  %answer = phi ptr [ %self, %shared ], [ %value, %start ], [ %kept, %drop ]
  ret ptr %answer
miss:
  ret ptr %e
}

define ptr @weft_call(ptr %self, ptr %args, i64 %nargs_flag, ptr %kwnames) {
entry:
  %nargs = and i64 %nargs_flag, 9223372036854775807
  %no_names = icmp eq ptr %kwnames, null
  br i1 %no_names, label %state, label %count_names
count_names:
  %counted = call i64 @PyTuple_Size(ptr %kwnames)
  br label %state
state:
  %n_names = phi i64 [ 0, %entry ], [ %counted, %count_names ], [ %n_names, %room ]
  %contexts = load i64, ptr @STATE
  %plain = icmp eq i64 %contexts, 0
  br i1 %plain, label %start, label %slow
start:
  %epoch_at = getelementptr [2 x i64], ptr @STATE, i64 0, i64 1
  %epoch = load i64, ptr %epoch_at
  %cell_at = getelementptr i8, ptr %self, i64 $CELL
  %cell_int = load ptr, ptr %cell_at
  %no_cell = icmp eq ptr %cell_int, null
  br i1 %no_cell, label %slow, label %open
open:
  %cell = call ptr @PyLong_AsVoidPtr(ptr %cell_int)
  %head = load ptr, ptr %cell
  br label %loop
loop:
  %e = phi ptr [ %head, %open ], [ %following, %skip ]
  %end = icmp eq ptr %e, null
  br i1 %end, label %slow, label %suits
skip:
  %following = load ptr, ptr %e
  br label %loop
suits:
  %n_at = getelementptr %entry, ptr %e, i32 0, i32 1
  %n = load i64, ptr %n_at
  %same_n = icmp eq i64 %n, %nargs
  %entry_epoch_at = getelementptr %entry, ptr %e, i32 0, i32 15
  %entry_epoch = load i64, ptr %entry_epoch_at
  %same_epoch = icmp eq i64 %entry_epoch, %epoch
  %kw_at = getelementptr %entry, ptr %e, i32 0, i32 18
  %kw = load i64, ptr %kw_at
  %same_kw = icmp eq i64 %kw, %n_names
  %both = and i1 %same_n, %same_epoch
  %candidate = and i1 %both, %same_kw
  br i1 %candidate, label %names, label %skip
names:
  %wanted_at = getelementptr %entry, ptr %e, i32 0, i32 20
  %wanted = load ptr, ptr %wanted_at
  br label %name_loop
name_loop:
  %ni = phi i64 [ 0, %names ], [ %ni1, %name_next ]
  %n_more = icmp ult i64 %ni, %n_names
  br i1 %n_more, label %name_one, label %attempt
name_one:
  %given = call ptr @PyTuple_GetItem(ptr %kwnames, i64 %ni)
  %want_at = getelementptr ptr, ptr %wanted, i64 %ni
  %want = load ptr, ptr %want_at
  %same_name = icmp eq ptr %given, %want
  br i1 %same_name, label %name_next, label %skip
name_next:
  %ni1 = add i64 %ni, 1
  br label %name_loop
attempt:
  %kind_at = getelementptr %entry, ptr %e, i32 0, i32 16
  %kind = load i64, ptr %kind_at
  %queued = and i64 %kind, 2
  %short = icmp eq i64 %queued, 0
  br i1 %short, label %match, label %room
room:
  %bytes_at = getelementptr %entry, ptr %e, i32 0, i32 24
  %bytes = load i64, ptr %bytes_at
  %waited = call i32 @weft_queue_room(i64 %bytes)
  switch i32 %waited, label %interrupted [ i32 0, label %match  i32 1, label %state ]   ; on 1, entries may have been dropped meanwhile
interrupted:
  ret ptr null
match:
  %value = call ptr @try(ptr %e, ptr %args, i64 %nargs, ptr %self)
  %missed = icmp eq ptr %value, %e
  br i1 %missed, label %skip, label %done
done:
  %starved = icmp eq ptr %value, %self
  br i1 %starved, label %slow, label %out
out:
  ret ptr %value
slow:
  %slow_at = getelementptr i8, ptr %self, i64 $SLOW
  %fn = load ptr, ptr %slow_at
  %n_given = add i64 %nargs, %n_names
  %room_for = add i64 %n_given, 1
  %with_self = alloca ptr, i64 %room_for
  store ptr %self, ptr %with_self
  %rest = getelementptr ptr, ptr %with_self, i64 1
  br label %copy
copy:
  %ci = phi i64 [ 0, %slow ], [ %ci1, %copy_one ]
  %c_more = icmp ult i64 %ci, %n_given
  br i1 %c_more, label %copy_one, label %call_slow
copy_one:
  %from = getelementptr ptr, ptr %args, i64 %ci
  %to = getelementptr ptr, ptr %rest, i64 %ci
  %moved = load ptr, ptr %from
  store ptr %moved, ptr %to
  %ci1 = add i64 %ci, 1
  br label %copy
call_slow:
  %n_args = add i64 %nargs, 1
  %r = call ptr @PyObject_Vectorcall(ptr %fn, ptr %with_self, i64 %n_args, ptr %kwnames)
  ret ptr %r
}

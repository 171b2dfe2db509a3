; Native call of a compiled function: match the arguments, find memory, run, build the result. Callers hold the GIL.
;
; `weft_call(self, args, nargs, kwnames)` has the signature of a METH_FASTCALL|METH_KEYWORDS method. The object's `_cell` slot is
; an int, the address of the head of a list of entries; its `_slow` slot is the callable that does everything unusual.
; $SPEC, $BUFFER, $PTR, $OWNER, $CELL, $SLOW are byte offsets of slots, found and checked at start-up by `dispatch.py`.
;
; An argument tree is a program of i64 words: 0 array | 1 n tuple | 2 n list | 3 n keys... dict | 4 None | 5 float as f32 |
; 6 float as f64 | 7 int as i32 | 8 int as i64 | 9 object: exactly this one (static arguments) | 10 bool.
; Keyword arguments follow the positional ones in the order of their names; word 19 says where each stands in the call.
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
                i64,       ; 15 epoch in which the entry holds
                i64,       ; 16 1: let other Python threads run meanwhile
                ptr,       ; 17 callable that raises what `run` failed with
                i64,       ; 18 keyword arguments
                ptr, ptr,  ; 19 place in the call of each, by name; names in the order of the call
                ptr,       ; 21 per result: the donated leaf whose memory it takes, or -1
                i64, ptr } ; 22 number and leaves of donated arrays
; program, specs, addresses, owners, arrays, room for numbers
%cursor = type { ptr, ptr, ptr, ptr, ptr, ptr }

@ARRAY_T = external global i8
@BUFFER_T = external global i8
@PyCapsule_Type = external global i8
@PyBool_Type = external global i8
@PyFloat_Type = external global i8
@PyLong_Type = external global i8
@_Py_TrueStruct = external global i8
@PyDict_Type = external global i8
@PyList_Type = external global i8
@PyTuple_Type = external global i8
@_Py_NoneStruct = external global i8
@STATE = external global [2 x i64]       ; contexts that need the slow path; epoch

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyCapsule_New(ptr, ptr, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare ptr @PyDict_GetItem(ptr, ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare ptr @PyList_New(i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyTuple_New(i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @weft_alloc(i64)
declare void @weft_free(ptr)

; destructor of the capsules that own results
define void @weft_capsule_free(ptr %capsule) {
  %at = getelementptr i8, ptr %capsule, i64 16
  %block = load ptr, ptr %at
  call void @weft_free(ptr %block)
  ret void
}

define internal i64 @fetch(ptr %c) alwaysinline {
  %p = load ptr, ptr %c
  %v = load i64, ptr %p
  %q = getelementptr i64, ptr %p, i64 1
  store ptr %q, ptr %c
  ret i64 %v
}

define internal ptr @advance(ptr %slot) alwaysinline {
  %p = load ptr, ptr %slot
  %q = getelementptr ptr, ptr %p, i64 1
  store ptr %q, ptr %slot
  ret ptr %p
}

; whether `x` has the expected tree; collects addresses and owners of its leaves
define internal i1 @match(ptr %x, ptr %c) {
entry:
  %op = call i64 @fetch(ptr %c)
  %type_at = getelementptr i8, ptr %x, i64 8
  %type = load ptr, ptr %type_at
  switch i64 %op, label %no [ i64 0, label %leaf  i64 1, label %tuple  i64 2, label %list  i64 3, label %dict  i64 4, label %none
    i64 5, label %float  i64 6, label %float  i64 7, label %int  i64 8, label %int  i64 9, label %same  i64 10, label %bool ]
same:
  %object_word = call i64 @fetch(ptr %c)
  %object = inttoptr i64 %object_word to ptr
  %is_object = icmp eq ptr %x, %object
  ret i1 %is_object
bool:
  %is_bool = icmp eq ptr %type, @PyBool_Type
  br i1 %is_bool, label %bool_value, label %no
bool_value:
  %truth = icmp eq ptr %x, @_Py_TrueStruct
  %truth_byte = zext i1 %truth to i64
  br label %number_found
float:
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %float_value, label %no
float_value:
  %double = call double @PyFloat_AsDouble(ptr %x)
  %single = fptrunc double %double to float
  %single_bits = bitcast float %single to i32
  %single_word = zext i32 %single_bits to i64
  %double_word = bitcast double %double to i64
  %narrow = icmp eq i64 %op, 5
  %float_word = select i1 %narrow, i64 %single_word, i64 %double_word
  br label %number_found
int:
  %is_int = icmp eq ptr %type, @PyLong_Type
  br i1 %is_int, label %int_value, label %no
int_value:
  %long = call i64 @PyLong_AsLongLong(ptr %x)
  %minus = icmp eq i64 %long, -1
  br i1 %minus, label %int_check, label %int_range
int_check:
  %raised = call ptr @PyErr_Occurred()
  %overflow = icmp ne ptr %raised, null
  br i1 %overflow, label %int_clear, label %int_range
int_clear:
  call void @PyErr_Clear()
  ret i1 0
int_range:
  %low = trunc i64 %long to i32
  %back = sext i32 %low to i64
  %fits = icmp eq i64 %back, %long
  %wide = icmp eq i64 %op, 8
  %in_range = or i1 %fits, %wide
  br i1 %in_range, label %number_found, label %no
number_found:
  %word = phi i64 [ %truth_byte, %bool_value ], [ %float_word, %float_value ], [ %long, %int_range ]
  %room = getelementptr %cursor, ptr %c, i32 0, i32 5
  %room_at = load ptr, ptr %room
  %room_next = getelementptr i64, ptr %room_at, i64 1
  store ptr %room_next, ptr %room
  store i64 %word, ptr %room_at
  %n_specs = getelementptr %cursor, ptr %c, i32 0, i32 1
  %n_spec_at = call ptr @advance(ptr %n_specs)
  br label %collect
leaf:
  %is_array = icmp eq ptr %type, @ARRAY_T
  br i1 %is_array, label %same_spec, label %no
same_spec:
  %spec_at = getelementptr i8, ptr %x, i64 $SPEC
  %spec = load ptr, ptr %spec_at
  %specs = getelementptr %cursor, ptr %c, i32 0, i32 1
  %wanted_at = call ptr @advance(ptr %specs)
  %wanted = load ptr, ptr %wanted_at
  %equal = icmp eq ptr %spec, %wanted
  br i1 %equal, label %owner, label %no
owner:
  %owner_at = getelementptr i8, ptr %x, i64 $BUFFER
  %own = load ptr, ptr %owner_at
  %unset = icmp eq ptr %own, null
  br i1 %unset, label %no, label %owner_kind
owner_kind:
  %own_type_at = getelementptr i8, ptr %own, i64 8
  %own_type = load ptr, ptr %own_type_at
  %is_capsule = icmp eq ptr %own_type, @PyCapsule_Type
  br i1 %is_capsule, label %capsule, label %maybe_buffer
capsule:
  %block_at = getelementptr i8, ptr %own, i64 16
  %block = load ptr, ptr %block_at
  br label %found
maybe_buffer:
  %is_buffer = icmp eq ptr %own_type, @BUFFER_T
  br i1 %is_buffer, label %buffer, label %no
buffer:
  %number_at = getelementptr i8, ptr %own, i64 $PTR
  %number = load ptr, ptr %number_at
  %address = call ptr @PyLong_AsVoidPtr(ptr %number)
  br label %found
found:
  %found_ptr = phi ptr [ %block, %capsule ], [ %address, %buffer ]
  br label %collect
collect:
  %ptr = phi ptr [ %found_ptr, %found ], [ %room_at, %number_found ]
  %kept = phi ptr [ %own, %found ], [ %x, %number_found ]
  %ptrs = getelementptr %cursor, ptr %c, i32 0, i32 2
  %ptr_at = call ptr @advance(ptr %ptrs)
  store ptr %ptr, ptr %ptr_at
  %owners = getelementptr %cursor, ptr %c, i32 0, i32 3
  %own_slot = call ptr @advance(ptr %owners)
  store ptr %kept, ptr %own_slot
  %arrays = getelementptr %cursor, ptr %c, i32 0, i32 4
  %array_slot = call ptr @advance(ptr %arrays)
  store ptr %x, ptr %array_slot
  ret i1 1
none:
  %is_none = icmp eq ptr %x, @_Py_NoneStruct
  ret i1 %is_none
tuple:
  %is_tuple = icmp eq ptr %type, @PyTuple_Type
  br i1 %is_tuple, label %tuple_size, label %no
tuple_size:
  %tn = call i64 @fetch(ptr %c)
  %ts = call i64 @PyTuple_Size(ptr %x)
  %t_ok = icmp eq i64 %tn, %ts
  br i1 %t_ok, label %tuple_loop, label %no
tuple_loop:
  %ti = phi i64 [ 0, %tuple_size ], [ %ti1, %tuple_next ]
  %t_more = icmp ult i64 %ti, %tn
  br i1 %t_more, label %tuple_item, label %yes
tuple_item:
  %tx = call ptr @PyTuple_GetItem(ptr %x, i64 %ti)
  %tm = call i1 @match(ptr %tx, ptr %c)
  br i1 %tm, label %tuple_next, label %no
tuple_next:
  %ti1 = add i64 %ti, 1
  br label %tuple_loop
list:
  %is_list = icmp eq ptr %type, @PyList_Type
  br i1 %is_list, label %list_size, label %no
list_size:
  %ln = call i64 @fetch(ptr %c)
  %ls = call i64 @PyList_Size(ptr %x)
  %l_ok = icmp eq i64 %ln, %ls
  br i1 %l_ok, label %list_loop, label %no
list_loop:
  %li = phi i64 [ 0, %list_size ], [ %li1, %list_next ]
  %l_more = icmp ult i64 %li, %ln
  br i1 %l_more, label %list_item, label %yes
list_item:
  %lx = call ptr @PyList_GetItem(ptr %x, i64 %li)
  %lm = call i1 @match(ptr %lx, ptr %c)
  br i1 %lm, label %list_next, label %no
list_next:
  %li1 = add i64 %li, 1
  br label %list_loop
dict:
  %is_dict = icmp eq ptr %type, @PyDict_Type
  br i1 %is_dict, label %dict_size, label %no
dict_size:
  %dn = call i64 @fetch(ptr %c)
  %ds = call i64 @PyDict_Size(ptr %x)
  %d_ok = icmp eq i64 %dn, %ds
  br i1 %d_ok, label %dict_loop, label %no
dict_loop:
  %di = phi i64 [ 0, %dict_size ], [ %di1, %dict_next ]
  %d_more = icmp ult i64 %di, %dn
  br i1 %d_more, label %dict_item, label %yes
dict_item:
  %key_word = call i64 @fetch(ptr %c)
  %key = inttoptr i64 %key_word to ptr
  %dx = call ptr @PyDict_GetItem(ptr %x, ptr %key)
  %absent = icmp eq ptr %dx, null
  br i1 %absent, label %no, label %dict_match
dict_match:
  %dm = call i1 @match(ptr %dx, ptr %c)
  br i1 %dm, label %dict_next, label %no
dict_next:
  %di1 = add i64 %di, 1
  br label %dict_loop
yes:
  ret i1 1
no:
  ret i1 0
}

; a new Array that owns `block`, or shares it with its present owner
define internal ptr @make_array(ptr %spec, ptr %block, ptr %owner) {
entry:
  %fresh = icmp eq ptr %owner, null
  br i1 %fresh, label %wrap, label %share
wrap:
  %new = call ptr @PyCapsule_New(ptr %block, ptr null, ptr @weft_capsule_free)
  br label %make
share:
  call void @Py_IncRef(ptr %owner)
  br label %make
make:
  %capsule = phi ptr [ %new, %wrap ], [ %owner, %share ]
  %x = call ptr @PyType_GenericAlloc(ptr @ARRAY_T, i64 0)
  call void @Py_IncRef(ptr %spec)
  %spec_at = getelementptr i8, ptr %x, i64 $SPEC
  store ptr %spec, ptr %spec_at
  %owner_at = getelementptr i8, ptr %x, i64 $BUFFER
  store ptr %capsule, ptr %owner_at
  ret ptr %x
}

; the result tree from specs and blocks
define internal ptr @build(ptr %c) {
entry:
  %op = call i64 @fetch(ptr %c)
  switch i64 %op, label %none [ i64 0, label %leaf  i64 1, label %tuple  i64 2, label %list  i64 3, label %dict ]
leaf:
  %specs = getelementptr %cursor, ptr %c, i32 0, i32 1
  %spec_at = call ptr @advance(ptr %specs)
  %spec = load ptr, ptr %spec_at
  %blocks = getelementptr %cursor, ptr %c, i32 0, i32 2
  %block_at = call ptr @advance(ptr %blocks)
  %block = load ptr, ptr %block_at
  %owners = getelementptr %cursor, ptr %c, i32 0, i32 3
  %owner_at = call ptr @advance(ptr %owners)
  %owner = load ptr, ptr %owner_at
  %array = call ptr @make_array(ptr %spec, ptr %block, ptr %owner)
  ret ptr %array
none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
tuple:
  %tn = call i64 @fetch(ptr %c)
  %t = call ptr @PyTuple_New(i64 %tn)
  br label %tuple_loop
tuple_loop:
  %ti = phi i64 [ 0, %tuple ], [ %ti1, %tuple_item ]
  %t_more = icmp ult i64 %ti, %tn
  br i1 %t_more, label %tuple_item, label %tuple_end
tuple_item:
  %tx = call ptr @build(ptr %c)
  %t_set = call i32 @PyTuple_SetItem(ptr %t, i64 %ti, ptr %tx)
  %ti1 = add i64 %ti, 1
  br label %tuple_loop
tuple_end:
  ret ptr %t
list:
  %ln = call i64 @fetch(ptr %c)
  %l = call ptr @PyList_New(i64 %ln)
  br label %list_loop
list_loop:
  %li = phi i64 [ 0, %list ], [ %li1, %list_item ]
  %l_more = icmp ult i64 %li, %ln
  br i1 %l_more, label %list_item, label %list_end
list_item:
  %lx = call ptr @build(ptr %c)
  %l_set = call i32 @PyList_SetItem(ptr %l, i64 %li, ptr %lx)
  %li1 = add i64 %li, 1
  br label %list_loop
list_end:
  ret ptr %l
dict:
  %dn = call i64 @fetch(ptr %c)
  %d = call ptr @PyDict_New()
  br label %dict_loop
dict_loop:
  %di = phi i64 [ 0, %dict ], [ %di1, %dict_item ]
  %d_more = icmp ult i64 %di, %dn
  br i1 %d_more, label %dict_item, label %dict_end
dict_item:
  %key_word = call i64 @fetch(ptr %c)
  %key = inttoptr i64 %key_word to ptr
  %dx = call ptr @build(ptr %c)
  %d_set = call i32 @PyDict_SetItem(ptr %d, ptr %key, ptr %dx)
  call void @Py_DecRef(ptr %dx)
  %di1 = add i64 %di, 1
  br label %dict_loop
dict_end:
  ret ptr %d
}

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

; free the blocks of the first `n` results, but for those that donated arrays still own
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

; the donated arrays of a call that succeeded give up their memory
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

; whether nobody else holds the memory that results will take over: another array or a view of it must keep its values.
; With all leaves counted once more, the memory of a donated one is held by its array and by this call alone.
define internal i1 @exclusive(ptr %e, ptr %owners) {
entry:
  %donated_at = getelementptr %entry, ptr %e, i32 0, i32 22
  %donated = load i64, ptr %donated_at
  %none = icmp eq i64 %donated, 0
  br i1 %none, label %yes, label %some
some:
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
  %refs = load i32, ptr %own                  ; the count is the low half of the first word in all versions
  %two = icmp eq i32 %refs, 2
  br i1 %two, label %kind, label %out
kind:
  %type_at = getelementptr i8, ptr %own, i64 8
  %type = load ptr, ptr %type_at
  %is_capsule = icmp eq ptr %type, @PyCapsule_Type
  br i1 %is_capsule, label %next, label %borrowed
borrowed:
  %lender_at = getelementptr i8, ptr %own, i64 $OWNER
  %lender = load ptr, ptr %lender_at
  %no_lender = icmp eq ptr %lender, @_Py_NoneStruct
  br i1 %no_lender, label %next, label %lender_kind
lender_kind:
  %lender_type_at = getelementptr i8, ptr %lender, i64 8
  %lender_type = load ptr, ptr %lender_type_at
  %lent_by_capsule = icmp eq ptr %lender_type, @PyCapsule_Type      ; a capsule lends to one buffer
  br i1 %lent_by_capsule, label %next, label %out
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  %ok = phi i1 [ 1, %loop ], [ 0, %held ], [ 0, %lender_kind ]
  call void @count_refs(ptr %owners, i64 %leaves, i1 0)
  ret i1 %ok
yes:
  ret i1 1
}

; run a matched entry; null with an exception set if it fails, `%self` (borrowed) if memory ran out or is shared: the slow path knows what to do
define internal ptr @run(ptr %e, ptr %slots, ptr %owners, ptr %arrays, ptr %out_owners, ptr %self) {
entry:
  %c = alloca %cursor
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
  br i1 %has_arena, label %arena_alloc, label %go
arena_alloc:
  %arena_block = call ptr @weft_alloc(i64 %arena_bytes)
  %no_arena = icmp eq ptr %arena_block, null
  br i1 %no_arena, label %no_arena_memory, label %go
no_arena_memory:
  call void @free_blocks(ptr %outs, ptr %out_owners, i64 %n)
  ret ptr %self
go:
  %arena = phi ptr [ null, %constants ], [ %arena_block, %arena_alloc ]
  store ptr %arena, ptr %arena_at
  %fn_at = getelementptr %entry, ptr %e, i32 0, i32 4
  %fn = load ptr, ptr %fn_at
  %release_at = getelementptr %entry, ptr %e, i32 0, i32 16
  %release = load i64, ptr %release_at
  %long = icmp ne i64 %release, 0
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
failed:                                          ; donated memory may hold half of a result
  call void @free_blocks(ptr %outs, ptr %out_owners, i64 %n)
  call void @give_up(ptr %e, ptr %owners, ptr %arrays)
  %raise_at = getelementptr %entry, ptr %e, i32 0, i32 17
  %raise = load ptr, ptr %raise_at
  %null = call ptr @PyObject_CallNoArgs(ptr %raise)
  ret ptr null
result:
  %tree_at = getelementptr %entry, ptr %e, i32 0, i32 11
  %tree = load ptr, ptr %tree_at
  store ptr %tree, ptr %c
  %out_specs_at = getelementptr %entry, ptr %e, i32 0, i32 9
  %out_specs = load ptr, ptr %out_specs_at
  %c1 = getelementptr %cursor, ptr %c, i32 0, i32 1
  store ptr %out_specs, ptr %c1
  %c2 = getelementptr %cursor, ptr %c, i32 0, i32 2
  store ptr %outs, ptr %c2
  %c3 = getelementptr %cursor, ptr %c, i32 0, i32 3
  store ptr %out_owners, ptr %c3
  %value = call ptr @build(ptr %c)
  call void @give_up(ptr %e, ptr %owners, ptr %arrays)
  ret ptr %value
}

; match the arguments and run; `%e` itself if they do not match
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
  %outs_1 = add i64 %outs, 1
  %out_owners = alloca ptr, i64 %outs_1
  %c = alloca %cursor
  %prog_at = getelementptr %entry, ptr %e, i32 0, i32 2
  %prog = load ptr, ptr %prog_at
  store ptr %prog, ptr %c
  %specs_at = getelementptr %entry, ptr %e, i32 0, i32 3
  %specs = load ptr, ptr %specs_at
  %c1 = getelementptr %cursor, ptr %c, i32 0, i32 1
  store ptr %specs, ptr %c1
  %first = getelementptr ptr, ptr %slots, i64 %pre
  %c2 = getelementptr %cursor, ptr %c, i32 0, i32 2
  store ptr %first, ptr %c2
  %c3 = getelementptr %cursor, ptr %c, i32 0, i32 3
  store ptr %owners, ptr %c3
  %c4 = getelementptr %cursor, ptr %c, i32 0, i32 4
  store ptr %arrays, ptr %c4
  %c5 = getelementptr %cursor, ptr %c, i32 0, i32 5
  store ptr %numbers, ptr %c5
  %kw_at = getelementptr %entry, ptr %e, i32 0, i32 18
  %kw = load i64, ptr %kw_at
  %all = add i64 %nargs, %kw
  %places_at = getelementptr %entry, ptr %e, i32 0, i32 19
  %places = load ptr, ptr %places_at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %all
  br i1 %more, label %which, label %matched
which:
  %positional = icmp ult i64 %i, %nargs
  br i1 %positional, label %one, label %named
named:
  %k = sub i64 %i, %nargs
  %place_at = getelementptr i64, ptr %places, i64 %k
  %place = load i64, ptr %place_at
  %named_i = add i64 %nargs, %place
  br label %one
one:
  %at = phi i64 [ %i, %which ], [ %named_i, %named ]
  %x_at = getelementptr ptr, ptr %args, i64 %at
  %x = load ptr, ptr %x_at
  %ok = call i1 @match(ptr %x, ptr %c)
  br i1 %ok, label %next, label %miss
next:
  %i1 = add i64 %i, 1
  br label %loop
matched:
  %own = call i1 @exclusive(ptr %e, ptr %owners)
  br i1 %own, label %start, label %shared
shared:
  ret ptr %self
start:
  %value = call ptr @run(ptr %e, ptr %slots, ptr %owners, ptr %arrays, ptr %out_owners, ptr %self)
  ret ptr %value
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
  %n_names = phi i64 [ 0, %entry ], [ %counted, %count_names ]
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
  %r = call ptr @PyObject_Vectorcall(ptr %fn, ptr %args, i64 %nargs_flag, ptr %kwnames)
  ret ptr %r
}

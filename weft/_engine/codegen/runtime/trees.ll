; Trees of Python objects, matched and built: the second part of the module that begins with `dispatch.ll`. Callers hold the GIL.
;
; $SPEC, $BUFFER, $VALUE, $PARTS, $WEAK (of an array), $PTR, $OWNER (of a buffer), $TUPLE and $LIST (the items of a tuple, the
; address of the items of a list) are byte offsets, checked at startup by `dispatch.py`. LLVM runs no inlining pass, so code for
; each leaf is written inline, including reference counting. The low half of a reference count serves in all versions of Python:
; with immortal objects its sign marks them, without them no object has 2^31 references.

declare void @_Py_Dealloc(ptr)
declare void @PyObject_GC_Track(ptr)
declare void @PyObject_GC_UnTrack(ptr)
declare void @PyObject_GC_Del(ptr)
declare void @PyObject_ClearWeakRefs(ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyDict_Copy(ptr)

@dead_arrays = internal global ptr null           ; freed arrays for reuse, linked through their first slot
@dead_count = internal global i64 0

; return whether `n` objects at `xs` have the expected trees; collect the addresses and owners of their leaves
define internal i1 @match(ptr %xs, i64 %n, ptr %c) {
entry:
  %k_at = getelementptr %cursor, ptr %c, i32 0, i32 1
  %specs_at = getelementptr %cursor, ptr %c, i32 0, i32 2
  %specs = load ptr, ptr %specs_at
  %ptrs_at = getelementptr %cursor, ptr %c, i32 0, i32 3
  %ptrs = load ptr, ptr %ptrs_at
  %owners_at = getelementptr %cursor, ptr %c, i32 0, i32 4
  %owners = load ptr, ptr %owners_at
  %arrays_at = getelementptr %cursor, ptr %c, i32 0, i32 5
  %arrays = load ptr, ptr %arrays_at
  %k_0 = load i64, ptr %k_at
  %p_0 = load ptr, ptr %c
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i_next, %next ]
  %k = phi i64 [ %k_0, %entry ], [ %k_next, %next ]
  %p = phi ptr [ %p_0, %entry ], [ %p_next, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %yes
one:
  %x_at = getelementptr ptr, ptr %xs, i64 %i
  %x = load ptr, ptr %x_at
  %op = load i64, ptr %p
  %p1 = getelementptr i64, ptr %p, i64 1
  %type_at = getelementptr i8, ptr %x, i64 8
  %type = load ptr, ptr %type_at
  %is_leaf = icmp eq i64 %op, 0
  br i1 %is_leaf, label %leaf, label %other
leaf:
  %is_array = icmp eq ptr %type, @ARRAY_T
  br i1 %is_array, label %same_spec, label %no
same_spec:
  %spec_at = getelementptr i8, ptr %x, i64 $SPEC
  %spec = load ptr, ptr %spec_at
  %wanted_at = getelementptr ptr, ptr %specs, i64 %k
  %wanted = load ptr, ptr %wanted_at
  %equal = icmp eq ptr %spec, %wanted
  br i1 %equal, label %owner, label %no
owner:
  %own_at = getelementptr i8, ptr %x, i64 $BUFFER
  %own = load ptr, ptr %own_at
  %unset = icmp eq ptr %own, null
  br i1 %unset, label %no, label %owner_kind
owner_kind:
  %own_type_at = getelementptr i8, ptr %own, i64 8
  %own_type = load ptr, ptr %own_type_at
  %is_block = icmp eq ptr %own_type, @BLOCK_T
  br i1 %is_block, label %block, label %maybe_buffer
maybe_buffer:
  %is_buffer = icmp eq ptr %own_type, @BUFFER_T
  br i1 %is_buffer, label %buffer, label %maybe_pending
maybe_pending:
  %is_pending = icmp eq ptr %own_type, @PENDING_T
  br i1 %is_pending, label %look_again, label %no
look_again:
  call void @weft_queue_reap()
  %type_now = load ptr, ptr %own_type_at
  %computed = icmp eq ptr %type_now, @BLOCK_T
  br i1 %computed, label %block, label %still_pending
still_pending:
  %pending_at = getelementptr %cursor, ptr %c, i32 0, i32 7
  store i64 1, ptr %pending_at
  %pending = icmp eq ptr %type_now, @PENDING_T
  br i1 %pending, label %block, label %no
buffer:                                           ; of a whole block, or of other memory
  %lender_at = getelementptr i8, ptr %own, i64 $OWNER
  %lender = load ptr, ptr %lender_at
  %lender_type_at = getelementptr i8, ptr %lender, i64 8
  %lender_type = load ptr, ptr %lender_type_at
  %of_block = icmp eq ptr %lender_type, @BLOCK_T
  br i1 %of_block, label %block, label %foreign
block:
  %object = phi ptr [ %own, %owner_kind ], [ %lender, %buffer ], [ %own, %look_again ], [ %own, %still_pending ]
  %memory = getelementptr i8, ptr %object, i64 64
  br label %found
foreign:
  %number_at = getelementptr i8, ptr %own, i64 $PTR
  %number = load ptr, ptr %number_at
  %address = call ptr @PyLong_AsVoidPtr(ptr %number)
  br label %found
found:
  %leaf_ptr = phi ptr [ %memory, %block ], [ %address, %foreign ]
  br label %collect
collect:
  %p_leaf = phi ptr [ %p1, %found ], [ %p_number, %number_found ], [ %p_numpy, %numpy_found ]
  %ptr = phi ptr [ %leaf_ptr, %found ], [ %room, %number_found ], [ %data, %numpy_found ]
  %kept = phi ptr [ %own, %found ], [ %x, %number_found ], [ %x, %numpy_found ]
  %ptr_at = getelementptr ptr, ptr %ptrs, i64 %k
  store ptr %ptr, ptr %ptr_at
  %own_slot = getelementptr ptr, ptr %owners, i64 %k
  store ptr %kept, ptr %own_slot
  %array_slot = getelementptr ptr, ptr %arrays, i64 %k
  store ptr %x, ptr %array_slot
  %k1 = add i64 %k, 1
  br label %next
next:
  %k_next = phi i64 [ %k1, %collect ], [ %k, %same ], [ %k, %none ], [ %k_inner, %inner ]
  %p_next = phi ptr [ %p_leaf, %collect ], [ %p2, %same ], [ %p1, %none ], [ %p_inner, %inner ]
  %i_next = add i64 %i, 1
  br label %loop
other:
  switch i64 %op, label %no [ i64 1, label %tuple  i64 2, label %list  i64 3, label %dict  i64 4, label %none
    i64 5, label %float  i64 6, label %float  i64 7, label %int  i64 8, label %int  i64 9, label %same  i64 10, label %bool
    i64 11, label %numpy  i64 12, label %numpy_number ]
none:
  %is_none = icmp eq ptr %x, @_Py_NoneStruct
  br i1 %is_none, label %next, label %no
same:
  %wanted_object = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %p, i64 2
  %is_object = icmp eq ptr %x, %wanted_object
  br i1 %is_object, label %next, label %no
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
  %p_number = phi ptr [ %p1, %bool_value ], [ %p1, %float_value ], [ %p1, %int_range ], [ %p3, %numpy_value ]
  %word = phi i64 [ %truth_byte, %bool_value ], [ %float_word, %float_value ], [ %long, %int_range ], [ %numpy_word, %numpy_value ]
  %numbers_at = getelementptr %cursor, ptr %c, i32 0, i32 6
  %numbers = load ptr, ptr %numbers_at
  %room = getelementptr i64, ptr %numbers, i64 %k
  store i64 %word, ptr %room
  br label %collect
numpy_number:                                     ; its value follows the header of the object
  %wanted_class = load ptr, ptr %p1
  %p3 = getelementptr i64, ptr %p, i64 3
  %is_class = icmp eq ptr %type, %wanted_class
  br i1 %is_class, label %numpy_value, label %no
numpy_value:
  %number_how_at = getelementptr i64, ptr %p1, i64 1
  %number_how = load i64, ptr %number_how_at
  %value_at = getelementptr i8, ptr %x, i64 16
  %as_it_is = load i64, ptr %value_at
  %as_double = load double, ptr %value_at
  %as_single = fptrunc double %as_double to float
  %as_single_bits = bitcast float %as_single to i32
  %as_single_word = zext i32 %as_single_bits to i64
  %to_single = icmp eq i64 %number_how, 1
  %numpy_word = select i1 %to_single, i64 %as_single_word, i64 %as_it_is
  br label %number_found
numpy:                                            ; byte offsets of fields: data 16, rank 24, shape 32, dtype 56, flags 64
  %array_class = load ptr, ptr %p1
  %is_numpy = icmp eq ptr %type, %array_class
  br i1 %is_numpy, label %numpy_type, label %no
numpy_type:
  %dtype_at = getelementptr i8, ptr %x, i64 56
  %dtype = load ptr, ptr %dtype_at
  %wanted_dtype_at = getelementptr i64, ptr %p1, i64 1
  %wanted_dtype = load ptr, ptr %wanted_dtype_at
  %same_dtype = icmp eq ptr %dtype, %wanted_dtype
  %rank_at = getelementptr i8, ptr %x, i64 24
  %rank_32 = load i32, ptr %rank_at
  %rank = sext i32 %rank_32 to i64
  %wanted_rank_at = getelementptr i64, ptr %p1, i64 4
  %wanted_rank = load i64, ptr %wanted_rank_at
  %same_rank = icmp eq i64 %rank, %wanted_rank
  %flags_at = getelementptr i8, ptr %x, i64 64
  %flags = load i32, ptr %flags_at
  %in_order = and i32 %flags, 257                 ; C-contiguous and aligned
  %is_plain = icmp eq i32 %in_order, 257
  %numpy_1 = and i1 %same_dtype, %same_rank
  %numpy_2 = and i1 %numpy_1, %is_plain
  br i1 %numpy_2, label %numpy_dims, label %no
numpy_dims:
  %shape_at = getelementptr i8, ptr %x, i64 32
  %shape = load ptr, ptr %shape_at
  %wanted_shape = getelementptr i64, ptr %p1, i64 5
  br label %numpy_dim
numpy_dim:
  %d = phi i64 [ 0, %numpy_dims ], [ %d1, %numpy_dim_next ]
  %d_more = icmp ult i64 %d, %rank
  br i1 %d_more, label %numpy_dim_one, label %numpy_found
numpy_dim_one:
  %extent_at = getelementptr i64, ptr %shape, i64 %d
  %extent = load i64, ptr %extent_at
  %wanted_extent_at = getelementptr i64, ptr %wanted_shape, i64 %d
  %wanted_extent = load i64, ptr %wanted_extent_at
  %same_extent = icmp eq i64 %extent, %wanted_extent
  br i1 %same_extent, label %numpy_dim_next, label %no
numpy_dim_next:
  %d1 = add i64 %d, 1
  br label %numpy_dim
numpy_found:                                      ; the contents may change later: they are copied once all arguments match
  %data_at = getelementptr i8, ptr %x, i64 16
  %data = load ptr, ptr %data_at
  %p_numpy = getelementptr i64, ptr %wanted_shape, i64 %rank
  %listed_at = getelementptr %cursor, ptr %c, i32 0, i32 8
  %listed = load ptr, ptr %listed_at
  %count_at = getelementptr %cursor, ptr %c, i32 0, i32 9
  %count = load i64, ptr %count_at
  %count_twice = mul i64 %count, 2
  %listed_leaf = getelementptr i64, ptr %listed, i64 %count_twice
  store i64 %k, ptr %listed_leaf
  %listed_words = getelementptr i64, ptr %listed_leaf, i64 1
  store ptr %p1, ptr %listed_words
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %count_at
  br label %collect
tuple:
  %is_tuple = icmp eq ptr %type, @PyTuple_Type
  br i1 %is_tuple, label %tuple_items, label %no
tuple_items:
  %tuple_first = getelementptr i8, ptr %x, i64 $TUPLE
  br label %items
list:
  %is_list = icmp eq ptr %type, @PyList_Type
  br i1 %is_list, label %list_items, label %no
list_items:
  %list_first_at = getelementptr i8, ptr %x, i64 $LIST
  %list_first = load ptr, ptr %list_first_at
  br label %items
items:
  %first = phi ptr [ %tuple_first, %tuple_items ], [ %list_first, %list_items ]
  %size_at = getelementptr i8, ptr %x, i64 16
  %size = load i64, ptr %size_at
  %wanted_size = load i64, ptr %p1
  %same_size = icmp eq i64 %size, %wanted_size
  br i1 %same_size, label %descend, label %no
descend:
  %p_items = getelementptr i64, ptr %p, i64 2
  store ptr %p_items, ptr %c
  store i64 %k, ptr %k_at
  %items_match = call i1 @match(ptr %first, i64 %size, ptr %c)
  br i1 %items_match, label %inner, label %no
inner:
  %k_inner = load i64, ptr %k_at
  %p_inner = load ptr, ptr %c
  br label %next
dict:
  %is_dict = icmp eq ptr %type, @PyDict_Type
  br i1 %is_dict, label %dict_size, label %no
dict_size:
  %keys = load i64, ptr %p1
  %given_size = call i64 @PyDict_Size(ptr %x)
  %as_many = icmp eq i64 %keys, %given_size
  br i1 %as_many, label %dict_values, label %no
dict_values:
  store i64 %k, ptr %k_at
  %values_match = call i1 @match_values(ptr %x, i64 %keys, ptr %p1, ptr %c)
  br i1 %values_match, label %inner, label %no
yes:
  store ptr %p, ptr %c
  store i64 %k, ptr %k_at
  ret i1 1
no:
  ret i1 0
}

; return whether the values of a dict have the expected trees; the words at `p` are the number of keys, a word, the keys
define internal i1 @match_values(ptr %x, i64 %n, ptr %p, ptr %c) {
entry:
  %values = alloca ptr, i64 %n
  %given_key = alloca ptr
  %position = alloca i64
  %keys = getelementptr i64, ptr %p, i64 2
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %collected
one:                                              ; results have their keys in order, and often become arguments
  %key_at = getelementptr ptr, ptr %keys, i64 %i
  %key = load ptr, ptr %key_at
  %value_at = getelementptr ptr, ptr %values, i64 %i
  store i64 %i, ptr %position
  %there = call i32 @PyDict_Next(ptr %x, ptr %position, ptr %given_key, ptr %value_at)
  %some = icmp ne i32 %there, 0
  br i1 %some, label %compare, label %look_up
compare:
  %given = load ptr, ptr %given_key
  %same_key = icmp eq ptr %given, %key
  br i1 %same_key, label %next, label %look_up
look_up:
  %found = call ptr @PyDict_GetItem(ptr %x, ptr %key)
  store ptr %found, ptr %value_at
  %absent = icmp eq ptr %found, null
  br i1 %absent, label %no, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
collected:
  %rest = getelementptr ptr, ptr %keys, i64 %n
  store ptr %rest, ptr %c
  %ok = call i1 @match(ptr %values, i64 %n, ptr %c)
  ret i1 %ok
no:
  ret i1 0
}

; %cursor: word of the program, leaf number; specs, blocks and owners of the results. Fill `n` places with new trees. Return false,
; with an exception set, if memory runs out: the places hold the finished objects, and blocks from the current leaf on have no array.
define internal i1 @build(ptr %places, i64 %n, ptr %c) {
entry:
  %k_at = getelementptr %cursor, ptr %c, i32 0, i32 1
  %specs_at = getelementptr %cursor, ptr %c, i32 0, i32 2
  %specs = load ptr, ptr %specs_at
  %blocks_at = getelementptr %cursor, ptr %c, i32 0, i32 3
  %blocks = load ptr, ptr %blocks_at
  %owners_at = getelementptr %cursor, ptr %c, i32 0, i32 4
  %owners = load ptr, ptr %owners_at
  %k_0 = load i64, ptr %k_at
  %p_0 = load ptr, ptr %c
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i_next, %next ]
  %k = phi i64 [ %k_0, %entry ], [ %k_next, %next ]
  %p = phi ptr [ %p_0, %entry ], [ %p_next, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %end
one:
  %place = getelementptr ptr, ptr %places, i64 %i
  %op = load i64, ptr %p
  %p1 = getelementptr i64, ptr %p, i64 1
  %is_leaf = icmp eq i64 %op, 0
  br i1 %is_leaf, label %leaf, label %other
leaf:
  %dead = load ptr, ptr @dead_arrays
  %any_dead = icmp ne ptr %dead, null
  br i1 %any_dead, label %revive, label %bear
revive:
  %dead_link = getelementptr i8, ptr %dead, i64 $SPEC
  %dead_next = load ptr, ptr %dead_link
  store ptr %dead_next, ptr @dead_arrays
  %count = load i64, ptr @dead_count
  %count1 = sub i64 %count, 1
  store i64 %count1, ptr @dead_count
  store i64 1, ptr %dead
  br label %array
bear:
  %born = call ptr @PyType_GenericAlloc(ptr @ARRAY_T, i64 0)
  %none_born = icmp eq ptr %born, null
  br i1 %none_born, label %fail, label %untrack
untrack:
  call void @PyObject_GC_UnTrack(ptr %born)
  br label %array
array:
  %x = phi ptr [ %dead, %revive ], [ %born, %untrack ]
  %spec_from = getelementptr ptr, ptr %specs, i64 %k
  %spec = load ptr, ptr %spec_from
  %spec_refs = load i32, ptr %spec
  %spec_more = add i32 %spec_refs, 1
  %spec_immortal = icmp slt i32 %spec_refs, 0
  %spec_count = select i1 %spec_immortal, i32 %spec_refs, i32 %spec_more
  store i32 %spec_count, ptr %spec
  %spec_at = getelementptr i8, ptr %x, i64 $SPEC
  store ptr %spec, ptr %spec_at
  %owner_from = getelementptr ptr, ptr %owners, i64 %k
  %owner = load ptr, ptr %owner_from
  %fresh = icmp eq ptr %owner, null
  br i1 %fresh, label %own, label %share
own:                                              ; the block's header becomes the object that owns it
  %block_from = getelementptr ptr, ptr %blocks, i64 %k
  %block = load ptr, ptr %block_from
  %object = getelementptr i8, ptr %block, i64 -64
  store i64 1, ptr %object
  %object_type = getelementptr i8, ptr %block, i64 -56
  store ptr @BLOCK_T, ptr %object_type
  br label %track
share:
  call void @Py_IncRef(ptr %owner)
  br label %track
track:
  %held = phi ptr [ %object, %own ], [ %owner, %share ]
  %buffer_at = getelementptr i8, ptr %x, i64 $BUFFER
  store ptr %held, ptr %buffer_at
  call void @PyObject_GC_Track(ptr %x)
  store ptr %x, ptr %place
  %k1 = add i64 %k, 1
  br label %next
next:
  %k_next = phi i64 [ %k1, %track ], [ %k, %none ], [ %k_inner, %inner ]
  %p_next = phi ptr [ %p1, %track ], [ %p1, %none ], [ %p_inner, %inner ]
  %i_next = add i64 %i, 1
  br label %loop
other:
  switch i64 %op, label %none [ i64 1, label %tuple  i64 2, label %list  i64 3, label %dict ]
none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  store ptr @_Py_NoneStruct, ptr %place
  br label %next
tuple:
  %tuple_size = load i64, ptr %p1
  %new_tuple = call ptr @PyTuple_New(i64 %tuple_size)
  store ptr %new_tuple, ptr %place
  %no_tuple = icmp eq ptr %new_tuple, null
  br i1 %no_tuple, label %fail, label %tuple_items
tuple_items:
  %tuple_first = getelementptr i8, ptr %new_tuple, i64 $TUPLE
  br label %items
list:
  %list_size = load i64, ptr %p1
  %new_list = call ptr @PyList_New(i64 %list_size)
  store ptr %new_list, ptr %place
  %no_list = icmp eq ptr %new_list, null
  br i1 %no_list, label %fail, label %list_items
list_items:
  %list_first_at = getelementptr i8, ptr %new_list, i64 $LIST
  %list_first = load ptr, ptr %list_first_at
  br label %items
items:
  %first = phi ptr [ %tuple_first, %tuple_items ], [ %list_first, %list_items ]
  %size = phi i64 [ %tuple_size, %tuple_items ], [ %list_size, %list_items ]
  %p_items = getelementptr i64, ptr %p, i64 2
  store ptr %p_items, ptr %c
  store i64 %k, ptr %k_at
  %made = call i1 @build(ptr %first, i64 %size, ptr %c)
  br i1 %made, label %inner, label %failed_inside
inner:
  %k_inner = load i64, ptr %k_at
  %p_inner = load ptr, ptr %c
  br label %next
dict:
  store i64 %k, ptr %k_at
  %new_dict = call ptr @build_dict(ptr %p1, ptr %c)
  store ptr %new_dict, ptr %place
  %no_dict = icmp eq ptr %new_dict, null
  br i1 %no_dict, label %failed_inside, label %inner
end:
  store ptr %p, ptr %c
  store i64 %k, ptr %k_at
  ret i1 1
fail:
  store i64 %k, ptr %k_at
  ret i1 0
failed_inside:
  ret i1 0
}

; return a new dict, or null; the words at `p` are the number of keys, a dict with these keys, the keys
define internal ptr @build_dict(ptr %p, ptr %c) {
entry:
  %n = load i64, ptr %p
  %model_at = getelementptr i64, ptr %p, i64 1
  %model = load ptr, ptr %model_at
  %keys = getelementptr i64, ptr %p, i64 2
  %rest = getelementptr ptr, ptr %keys, i64 %n
  %values = alloca ptr, i64 %n
  store ptr %rest, ptr %c
  br label %clear
clear:
  %m = phi i64 [ 0, %entry ], [ %m1, %clear_one ]
  %uncleared = icmp ult i64 %m, %n
  br i1 %uncleared, label %clear_one, label %fill
clear_one:
  %clear_at = getelementptr ptr, ptr %values, i64 %m
  store ptr null, ptr %clear_at
  %m1 = add i64 %m, 1
  br label %clear
fill:
  %built = call i1 @build(ptr %values, i64 %n, ptr %c)
  br i1 %built, label %copy, label %drop
copy:                                             ; a copy is cheaper than inserting keys into an empty dict
  %d = call ptr @PyDict_Copy(ptr %model)
  %no_dict = icmp eq ptr %d, null
  br i1 %no_dict, label %drop, label %loop
loop:
  %i = phi i64 [ 0, %copy ], [ %i1, %one ]
  %left = icmp ult i64 %i, %n
  br i1 %left, label %one, label %drop
one:                                              ; cannot fail: the key exists
  %key_at = getelementptr ptr, ptr %keys, i64 %i
  %key = load ptr, ptr %key_at
  %value_at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value_at
  %status = call i32 @PyDict_SetItem(ptr %d, ptr %key, ptr %value)
  %i1 = add i64 %i, 1
  br label %loop
drop:                                             ; the dict, if any, has its own references to the values; they may be null
  %result = phi ptr [ null, %fill ], [ null, %copy ], [ %d, %loop ]
  br label %drop_loop
drop_loop:
  %j = phi i64 [ 0, %drop ], [ %j1, %drop_one ]
  %more = icmp ult i64 %j, %n
  br i1 %more, label %drop_one, label %done
drop_one:
  %held_at = getelementptr ptr, ptr %values, i64 %j
  %held = load ptr, ptr %held_at
  call void @Py_DecRef(ptr %held)
  %j1 = add i64 %j, 1
  br label %drop_loop
done:
  ret ptr %result
}

; destructor of arrays: release the contents of the slots, and keep the object for the next result
define void @weft_array_dealloc(ptr %x) {
entry:
  call void @PyObject_GC_UnTrack(ptr %x)
  %weak_at = getelementptr i8, ptr %x, i64 $WEAK
  %weak = load ptr, ptr %weak_at
  %watched = icmp ne ptr %weak, null
  br i1 %watched, label %tell, label %view
tell:
  call void @PyObject_ClearWeakRefs(ptr %x)
  br label %view
view:
  %value_at = getelementptr i8, ptr %x, i64 $VALUE
  %value = load ptr, ptr %value_at
  %no_value = icmp eq ptr %value, null
  br i1 %no_value, label %shards, label %drop_value
drop_value:
  store ptr null, ptr %value_at
  call void @Py_DecRef(ptr %value)
  br label %shards
shards:
  %parts_at = getelementptr i8, ptr %x, i64 $PARTS
  %parts = load ptr, ptr %parts_at
  %no_parts = icmp eq ptr %parts, null
  br i1 %no_parts, label %buffer, label %drop_parts
drop_parts:
  store ptr null, ptr %parts_at
  call void @Py_DecRef(ptr %parts)
  br label %buffer
buffer:
  %buffer_at = getelementptr i8, ptr %x, i64 $BUFFER
  %held = load ptr, ptr %buffer_at
  store ptr null, ptr %buffer_at
  %no_buffer = icmp eq ptr %held, null
  br i1 %no_buffer, label %spec, label %held_count
held_count:
  %held_refs = load i32, ptr %held
  %held_immortal = icmp slt i32 %held_refs, 0
  br i1 %held_immortal, label %spec, label %held_less
held_less:
  %held_left = sub i32 %held_refs, 1
  store i32 %held_left, ptr %held
  %held_dead = icmp eq i32 %held_left, 0
  br i1 %held_dead, label %held_kind, label %spec
held_kind:
  %held_type_at = getelementptr i8, ptr %held, i64 8
  %held_type = load ptr, ptr %held_type_at
  %is_block = icmp eq ptr %held_type, @BLOCK_T
  br i1 %is_block, label %free_block, label %free_buffer
free_block:
  %block = getelementptr i8, ptr %held, i64 64
  call void @weft_free(ptr %block)
  br label %spec
free_buffer:
  call void @_Py_Dealloc(ptr %held)
  br label %spec
spec:
  %spec_at = getelementptr i8, ptr %x, i64 $SPEC
  %old_spec = load ptr, ptr %spec_at
  store ptr null, ptr %spec_at
  %no_spec = icmp eq ptr %old_spec, null
  br i1 %no_spec, label %kind, label %spec_count
spec_count:
  %spec_refs = load i32, ptr %old_spec
  %spec_immortal = icmp slt i32 %spec_refs, 0
  br i1 %spec_immortal, label %kind, label %spec_less
spec_less:
  %spec_left = sub i32 %spec_refs, 1
  store i32 %spec_left, ptr %old_spec
  %spec_dead = icmp eq i32 %spec_left, 0
  br i1 %spec_dead, label %free_spec, label %kind
free_spec:
  call void @_Py_Dealloc(ptr %old_spec)
  br label %kind
kind:                                             ; instances of subclasses have another size
  %type_at = getelementptr i8, ptr %x, i64 8
  %type = load ptr, ptr %type_at
  %exact = icmp eq ptr %type, @ARRAY_T
  %count = load i64, ptr @dead_count
  %room = icmp ult i64 %count, 4096
  %keep = and i1 %exact, %room
  br i1 %keep, label %bury, label %release
bury:
  %next = load ptr, ptr @dead_arrays
  store ptr %next, ptr %spec_at
  store ptr %x, ptr @dead_arrays
  %count1 = add i64 %count, 1
  store i64 %count1, ptr @dead_count
  ret void
release:
  call void @PyObject_GC_Del(ptr %x)
  call void @Py_DecRef(ptr %type)
  ret void
}

// Package foldvalidate judges the values of tables that say validate: true by the buf.validate rules of their messages,
// with protovalidate. It is a package of its own so that a program without such tables has no CEL in it.
//
//	v, err := foldvalidate.New(&routesv1.Route{}, &routesv1.Node{})
//	b := fold.NewBuilder(bucket, store, fold.Options{Validator: v})
//	w := routesv1fold.NewRouteWriter(bucket, fold.WithValidator(v))
package foldvalidate

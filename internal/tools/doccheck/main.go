// Doccheck fails when something exported has no doc comment.
//
//	doccheck dir...
//
// It looks at every package in and below the given directories: the package clause, and the
// exported constants, variables, types, functions, methods, struct fields and interface
// methods. A comment on a const or var group counts for its members. The methods Error, String
// and Unwrap, whose interfaces say what they do, may go without. So may, below a directory
// named internal, fields and interface methods; of package main only the package comment is
// asked for. Tests, and the directories that the go command leaves out of "./...", are not
// looked at.
//
// The rule "exported" of revive asks for no comment on fields and interface methods.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// obvious methods do what their interfaces say.
var obvious = map[string]bool{"Error": true, "String": true, "Unwrap": true}

func main() {
	found := 0
	for _, root := range os.Args[1:] {
		missing, err := check(root)
		if err != nil {
			fmt.Fprintln(os.Stderr, "doccheck:", err)
			os.Exit(2)
		}
		for _, m := range missing {
			fmt.Println(m)
		}
		found += len(missing)
	}
	if found > 0 {
		os.Exit(1)
	}
}

// check reports what lacks a comment in and below root, one line each.
func check(root string) ([]string, error) {
	var c checker
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root &&
			(name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") ||
				strings.HasPrefix(name, "_")) {
			return fs.SkipDir
		}
		return c.dir(path)
	})
	return c.missing, err
}

type checker struct {
	fset     *token.FileSet
	internal bool // the directory under way is below one named internal
	missing  []string
}

func (c *checker) dir(path string) error {
	names, err := filepath.Glob(filepath.Join(path, "*.go"))
	if err != nil {
		return err
	}
	c.fset = token.NewFileSet()
	c.internal = slices.Contains(strings.Split(path, string(filepath.Separator)), "internal")
	var first *ast.File
	hasDoc := false
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(c.fset, name, nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if first == nil {
			first = file
		}
		hasDoc = hasDoc || file.Doc.Text() != ""
		if file.Name.Name != "main" {
			c.file(file)
		}
	}
	if first != nil && !hasDoc {
		c.miss(first, "package "+first.Name.Name)
	}
	return nil
}

func (c *checker) file(file *ast.File) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			recv := receiver(decl)
			if recv == "" {
				c.want(decl.Name, decl.Name.Name, decl.Doc)
			} else if ast.IsExported(recv) && !obvious[decl.Name.Name] {
				c.want(decl.Name, recv+"."+decl.Name.Name, decl.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						c.want(name, name.Name, decl.Doc, spec.Doc, spec.Comment)
					}
				case *ast.TypeSpec:
					c.want(spec.Name, spec.Name.Name, spec.Doc, soleDoc(decl))
					if spec.Name.IsExported() && !c.internal {
						c.members(spec)
					}
				}
			}
		}
	}
}

// members checks the fields of a struct type and the methods of an interface type.
func (c *checker) members(spec *ast.TypeSpec) {
	var list *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			c.want(name, spec.Name.Name+"."+name.Name, field.Doc, field.Comment)
		}
	}
}

// want asks for text in one of docs if name is exported.
func (c *checker) want(name *ast.Ident, full string, docs ...*ast.CommentGroup) {
	if !name.IsExported() {
		return
	}
	for _, doc := range docs {
		if doc.Text() != "" {
			return
		}
	}
	c.miss(name, full)
}

func (c *checker) miss(at ast.Node, what string) {
	c.missing = append(c.missing, fmt.Sprintf("%s: %s has no doc comment",
		c.fset.Position(at.Pos()), what))
}

// soleDoc is the comment above "type T …". Above "type ( … )" it describes the group and not a
// type.
func soleDoc(decl *ast.GenDecl) *ast.CommentGroup {
	if decl.Lparen.IsValid() {
		return nil
	}
	return decl.Doc
}

// receiver returns the name of a method's receiver type, or "" for a function.
func receiver(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return ""
	}
	t := decl.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

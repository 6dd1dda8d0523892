package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
)

// mutant is one change of a file.
type mutant struct {
	file     string // from the root of the module
	line     int
	from, to int // offsets
	text     string
	what     string
}

// operators are what binary ones become.
var operators = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=",
	token.NEQ: "==", token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+",
	token.MUL: "/", token.QUO: "*",
}

// opposites are what booleans become.
var opposites = map[string]string{"true": "false", "false": "true"}

// points finds the mutants of a file, in the order of its text.
type points struct {
	file string
	src  []byte
	set  *token.FileSet
	all  []mutant
}

func pointsOf(root, file string) ([]mutant, error) {
	src, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	p := &points{file: file, src: src, set: token.NewFileSet()}
	f, err := parser.ParseFile(p.set, file, src, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(f, p.visit)
	return p.all, nil
}

// add adds the mutant that has text between two places.
func (p *points) add(from, to token.Pos, text, what string) {
	at := p.set.Position(from)
	p.all = append(p.all, mutant{p.file, at.Line, at.Offset, p.set.Position(to).Offset, text, what})
}

func (p *points) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.IMPORT
	case *ast.IfStmt:
		from, to := n.Cond.Pos(), n.Cond.End()
		cond := string(p.src[p.set.Position(from).Offset:p.set.Position(to).Offset])
		p.add(from, to, "!("+cond+")", "negate")
		p.add(from, to, "("+cond+") && false", "never")
	case *ast.BinaryExpr:
		if op, ok := operators[n.Op]; ok && !(n.Op == token.ADD && (isText(n.X) || isText(n.Y))) {
			p.add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op, n.Op.String()+" to "+op)
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			p.add(n.Pos(), n.End(), fmt.Sprint(v+1), fmt.Sprintf("%d to %d", v, v+1))
		}
	case *ast.Ident:
		if other, ok := opposites[n.Name]; ok {
			p.add(n.Pos(), n.End(), other, n.Name+" to "+other)
		}
	case *ast.BlockStmt:
		p.remove(n.List)
	case *ast.CaseClause:
		p.remove(n.Body)
	case *ast.CommClause:
		p.remove(n.Body)
	}
	return true
}

func isText(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Kind == token.STRING
}

// remove adds the mutants that lack a statement.
func (p *points) remove(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.SendStmt:
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok != token.CONTINUE && s.Tok != token.BREAK {
				continue
			}
		default:
			continue
		}
		p.add(s.Pos(), s.End(), "", "remove")
	}
}

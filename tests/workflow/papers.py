"""The listings of the YML paper (Noël and others, 2006), as printed, and applications that others describe."""

from __future__ import annotations

import re

FIGURE_2 = '''<?xml version="1.0"?>
<yml-query login="userName" password="pass">

  <application>
    <source>
      size      := 4;
      div       := 2;
      url1      := "http://www.prism.uvsq.fr/cni/yml/matrix1.csv";
      url2      := "http://www.prism.uvsq.fr/cni/yml/matrix2.csv";

   par
     par (i:= 1; div)          # i = index of the row
       (j:= 1; div)          # j = index of the column
     do
       compute MatrixLoad(mat[1][i][j],url1,size,div,i,j);
       compute MatrixLoad(mat[2][i][j],url2,size,div,i,j);
       notify(evtMatrixLoaded[1][i][j]);
       notify(evtMatrixLoaded[2][i][j]);
     enddo
   //
   par (i:= 1; div)
     (j:= 1; div)
     (k:= 1; div)
   do
     wait(evtMatrixLoaded[1][i][k]);
     wait(evtMatrixLoaded[2][k][j]);
     compute MatrixProduct(result[i][j][k],mat[1][i][k],mat[2][k][j]);
   enddo
 endpar

 seq (i:= 1; div)
   (j:= 1; div)
   (k:= 1; div)
 do
   compute MatrixComp(final,i,j,size,div,result[i][j][k]);
 enddo

    </source>
  </application>
</yml-query>
'''

ABSTRACT = '''<?xml version="1.0" ?>
<yml-query login="userName" password="pass">
  <component name="MatrixProduct" type="abstract"
    description="Product of two matrices">

    <param name="result" type="Matrix" mode="out"/>
    <param name="mat1" type="Matrix" mode="in" />
    <param name="mat2" type="Matrix" mode="in" />

  </component>
</yml-query>
'''

IMPLEMENTATION = '''<?xml version="1.0" ?>
  <yml-query login="userName" password="pass">
    <component name="MatrixProduct_Impl" type="impl"
      abstract="MatrixProduct"
      description="Product of two matrices">
      <globals>
        <![CDATA[

          #include <matrix.h>

          ]]>
        </globals>
        <source lang="CXX">
          <![CDATA[

            result = mat1 * mat2;

          ]]>
        </source>
      </component>
    </yml-query>
'''


def without_credentials(text: str) -> str:
    return re.sub(r' login="userName" password="pass"', "", text)
